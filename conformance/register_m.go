package conformance

var registerM = []Requirement{
	met("M1", "A response that ends, is reset or is cut short without the answer, or an exchange that dies before its headers, is a break and no parse error.", "TestM1_AResetBeforeTheHeadersIsABreak", "TestM1_AResponseThatEndsWithoutItsAnswerIsABreak", "TestM1_AResponseWithoutItsAnswerIsABreak"),
	met("M2", "An answer that came, errors included, a status that is no success, and our own cancel, timeout or close are no break.", "TestM2_OurOwnCancelAndCloseAreNoBreak", "TestM2_WhatIsNoBreak", "TestM2_WhoGaveUpOrClosedIsNotIssuedAgain"),
	gap("M3", "A broken request is issued once more under a new id; the old id is forgotten first, its late answer dropped, and nothing cancels it."),
	gap("M4", "A second break ends with OutcomeUnknown; any other failure of the re-issue is that failure."),
	met("M5", "That a stream was lost is a type that the transport's event sets; no peer can forge it.", "TestM5_NoPeerCanForgeALostStream"),
	part("M6", "tools/call is issued again only on evidence, through the generic call too; anything short of it means one POST and a lost call.", "missing: on the wire", "TestM6_OnlyAJSONTrueGrants", "TestM6_WhatIsNotListedIsNotGranted", "TestRules_NeverRunAToolTwiceWithoutProof"),
	part("M7", "Evidence is the latest complete listing of this incarnation, holds at send and at loss, and contradictions grant nothing.", "missing: listings of a real peer", "TestM7_DuplicateNamesMustAllGrant", "TestM7_OnlyACompleteListingIsEvidence", "TestM7_EvidenceIsAValue", "TestM7_AListingWithoutEndGivesNoEvidenceAndIsForgotten", "TestM7_ListingsAreReadThroughAnyWhiteSpaceAndNesting"),
	part("M8", "The read set is issued again, vendor and unknown methods are not; server/discover only on a settled connection.", "missing: on the wire", "TestS33_ReadSetIsExactlyTheEightMethods", "TestRules_EachRow", "TestRules_AgreeWithTheRulesWrittenByHand"),
	part("M9", "Continuations are never issued again, and no call more than once for a break.", "missing: on the wire", "TestRules_WhereTwoMatchTheFirstWins", "TestRules_AgreeWithTheRulesWrittenByHand"),
	part("M10", "Listen streams re-open by their own rules; the death of a process is none of these.", "missing: HTTP", "TestB089_OnlyAnAbruptEndOpensAStreamAgain"),
	gap("M11", "A header mismatch lists the tool anew and sends once more; three sends of one call at most."),
	gap("M12", "A legacy stream is resumed by GET and Last-Event-ID, with a floor on retry, capped attempts and no duplicates; without an event id its outcome is unknown."),
	gap("M13", "A request whose connection could not be made is unsent: held behind one backoff where calls may wait, else NotExecuted."),
}
