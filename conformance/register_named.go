package conformance

// registerNamed is what the specification asks of a client that recovers, under
// the names that other registers give it.
var registerNamed = []Requirement{
	met("streamable-http-client-reinit-on-404", "A client that gets 404 to a request with a session id starts a new session by an initialize without one (2025-11-25, transports, Session Management 4), and the refused request is made again there.", "TestH1_ASessionIsGoneWhateverTheBodySays", "TestH5_TheOrderOnTheWire", "TestH5_OverRealHTTPTheOrderAndTheHeaders", "TestH6_OverRealHTTPAThousandCallersRefusedAtOnce", "TestB001_AForgottenSessionIsReplaced"),
	met("streamable-http-client-reissue-broken-request", "A client whose response stream broke makes the request again under a new id (2026-07-28, changelog 9): once, and never where a second run may do harm.", "TestM3_ABrokenReadIsIssuedAgainOnceUnderANewID", "TestM1_OverRealHTTPEveryBreakOfAReadIsHealedOnce", "TestM4_OverRealHTTPAToolThatRanIsNotIssuedAgain", "TestM6_AToolIsIssuedAgainOnlyOnEvidence"),
	met("stdio-client-restart-crashed-server", "A client restarts a server process that exits unexpectedly and re-establishes its listen streams; lost requests may be retried (2026-07-28, transports, stdio).", "TestB052_ARealServerIsRestartedHoweverItEnds", "TestS7_AnyEndIsADeath", "TestS34_AReadIsSentAgainUnderItsIdAndTheHostSeesOnlyTheAnswer", "TestS41_AStreamIsOpenedAgainUnderItsIDWithItsFilterAndFreshMetadata"),
}
