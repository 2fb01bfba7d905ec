package conformance

var registerH = []Requirement{
	part("H1", "404 or 410 to a request that carried the issued session id means that the session is gone, whatever the body; only a 404 with -32601 for this very id is a mere suspicion.", "missing: on the wire", "TestH1_NotFoundMeansGoneWhateverTheBodySays", "TestH1_IDsAreComparedAsJSONValues"),
	part("H2", "400, 401, 409 and errors that match no request are a suspicion, settled by one shared ping on the same session.", "missing: on the wire", "TestH2_SomeRefusalsAreSuspicions", "TestH2_ThePingSettlesASuspicion"),
	part("H3", "Notifications, replies, initialize, DELETE, resumes, foreign session ids, modern traffic, other statuses, network errors, timeouts and cancels trigger nothing.", "missing: on the wire", "TestH3_NotATrigger"),
	met("H4", "A standalone GET that never worked means that there is no stream; one that was open and now gets 404 is a suspicion.", "TestH4_StandaloneGET", "TestH4_AGetThatHadWorkedMakesItsSessionSuspect", "TestH4_AGetThatNeverWorkedIsNoSign", "TestH4_ASessionThatAnswersItsPingKeepsTryingItsGet", "TestH4_AnOpenStandaloneStreamSaysThatItOpenedAndThatItEnded", "TestH4_AnyRefusalOfTheStandaloneGETIsAFactAndNoMore"),
	gap("H5", "A recovery sends initialize without session and version, then initialized, the GET, the replayed state and the refused requests, in this order."),
	gap("H6", "However many requests were refused, there is one initialize and one re-send each; late refusals only re-send."),
	gap("H7", "A refused request is sent again once, whatever its method; a second refusal surfaces as NotExecuted, without a third POST."),
	gap("H8", "Requests made during a recovery wait for it within their deadlines; one caller's cancel disturbs nobody else."),
	gap("H9", "A recovery runs on its own bounded context; its failure fails every waiter with NotExecuted, and the next request tries again."),
	gap("H10", "initialize answered 404 is a failure without recursion; a session without an id is legal; the same id issued again is still a new generation."),
	met("H11", "The session id is taken only from a successful answer to initialize, which itself never carries one.", "TestH11_OnlyASuccessfulInitializeGivesASessionID", "TestH11_TheSessionIDComesFromASuccessfulInitializeAndGoesOnAllThatFollows", "TestH11_TheSessionIsInForceBeforeItsAnswerIsEmitted"),
	gap("H12", "Other requests in flight on the old session are not replayed: a late answer wins, else they end with OutcomeUnknown and never hang."),
	gap("H13", "A cursor of the dead session is not sent again: a typed listing restarts if nothing was given out, else ErrCursorLost."),
	met("H14", "Close during a recovery fails its waiters with ErrClosed; the session of an initialize in flight is deleted, never used; a retired session is not deleted.", "TestH14_ARetiredSessionEndsWithItsLastExchange", "TestH14_AnInitializeInFlightIsNotCancelled", "TestH14_CloseDeletesTheSession", "TestH14_CloseDuringARecovery", "TestH14_CloseWaitsForRetiredSessionsToo"),
	gap("H15", "Servers that evict each other's sessions, and replicas without affinity, meet backoff between recoveries, and a report."),
	gap("H16", "Nothing needs a restart of the host, the client or the process to heal."),
}
