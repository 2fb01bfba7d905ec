package conformance

var registerT = []Requirement{
	met("T1", "Whether a replacement comes is decided before the close listener runs, not inside it.", "TestT1_WhetherAReplacementComesIsDecidedBeforeTheListenerHears"),
	met("T2", "A late exit of an old process, or a late 404 of an old session, leaves its replacement alone.", "TestT2_AStaleEventChangesNothingInAMachine", "TestS9_WhatADeadIncarnationSaysReachesNobody", "TestB026_ALateEndTouchesItsOwnGenerationOnly", "TestT2_ARealServersLateEndLeavesItsReplacementAlone", "TestT2_ALateRefusalTearsDownNoSuccessor"),
	met("T3", "A cancelled leader of a shared recovery does not poison those who wait with it.", "TestT3_ACancelledLeaderDoesNotFailWhoWaitsWithIt", "TestT3_TheFirstToBeRefusedMayGiveUp"),
	met("T4", "No loop re-opens a stream with no session and no initialize.", "TestT4_NoStreamIsOpenedWithoutASession", "TestH4_ASessionThatAnswersItsPingKeepsTryingItsGet"),
	met("T5", "No latch keeps the standalone stream from starting again after a recovery.", "TestT5_EachSessionHasAStreamOfItsOwn"),
	met("T6", "No lock is held while listeners are told, who may call back.", "TestT6_AListenerMayCallBack", "TestS22_CloseFromEachCallbackIsSafe"),
	met("T7", "The mark of a lost stream survives an error's way through JSON.", "TestT7_NoAnswerOfAPeerReadsAsABreak", "TestT7_TheLossOfAStreamIsAType"),
	met("T8", "No gate sits in CallTool alone: the generic call passes it too.", "TestT8_TheGenericCallPassesTheSameRulesAsTheTypedOne", "TestT8_TheGateHoldsForEveryKindOfCall"),
	met("T9", "A walk over the streams survives callbacks that close some of them.", "TestT9_CallbacksMayCloseAnyStreamAtAnyTime"),
	met("T10", "Tests count requests by method and session, so that a second initialize or a third POST cannot hide.", "TestH6_ManyRefusalsOneInitialize", "TestH7_ASecondRefusalSurfaces", "TestH6_OverRealHTTPAThousandCallersRefusedAtOnce", "TestRandomStormsOverHTTP"),
	met("T11", "Long lines, a Wait that races the reader, a grandchild on stdout, a process tied to one call and a blocking body close do no harm.", "TestT11_ALongLineHoldsLittle", "TestT11_LongLinesGoBothWays", "TestT11_AGrandchildThatHoldsStdoutDelaysNobody", "TestB036_T11_AnAnswerIsDeliveredAndCloseReturnsWhileTheServerKeepsTheStream", "TestT11_NothingIsLeftOfTheOwnClientOverHTTP2"),
	met("T12", "net/http never repeats a POST behind our back; sends are counted.", "TestT12_AConnectionThatDiedIdleIsReplaced", "TestT12_ARequestThatADeadConnectionDidNotTakeIsSentOnAnother", "TestT12_EachRequestRunsOnceWhateverTheConnectionsDo", "TestT12_NetHTTPNeverRepeatsAPOST"),
	met("T13", "Jumps of the wall clock and a sleeping machine burn no budget and fire no storm of timers.", "TestT13_WallClockStepChangesNoVerdict", "TestT13_TimeThatRunsBackwardsOpensNoWindow", "TestT13_TimeReadInsideABubbleIsCharged", "TestT13_ACallThatHadNoChanceIsNotTimedOutFirst", "TestT13_ASleepBurnsNoBudget", "TestT13_AStartThatTheMachineSleptThroughGetsItsTime", "TestT13_AfterASleepTimersDoNotFireAsAStorm", "TestT13_TheUnsteadyClockIsWhatItSays", "TestT13_AStepOfTheWallClockMovesNoTimer", "TestT13_AStepOfTheWallClockBurnsNoBudget", "TestT13_AMachineThatSleptTakesNobodyForDead", "TestT13_ALeapOverEveryTimerFiresNoStorm"),
	met("T14", "Neither a full stderr pipe nor a full stdin pipe blocks anybody but its own writer.", "TestT14_AFullStderrPipeBlocksNoServer", "TestT14_AStderrWriterThatIsStuckBlocksNoServer", "TestB065_AServerThatStopsReadingBlocksNobody", "TestT14_AHostThatNeverReadsStderrStopsNothing"),
	met("T15", "A local error never looks like the peer's.", "TestT15_NoLocalErrorLooksLikeThePeers", "TestT15_WhatThePeerSaysIsAlwaysThePeers", "TestT15_AnErrorOfOursIsNoErrorOfThePeer"),
	met("T16", "After policy called a session gone, its next message and the return of its Serve are stale.", "TestT16_WhatAnEndedIncarnationStillDoesIsStale", "TestT16_AGenerationThatMovesTooLateIsFound", "TestT16_WhatTheOldSessionStillSaysIsStale"),
	met("T17", "Nothing blocks the loop: re-sends, reader and server cannot wait for each other in a circle.", "TestT17_NothingBlocksTheLoop"),
	met("T18", "A late answer to the era probe keeps a slow modern server modern.", "TestT18_ALateAnswerToTheProbeKeepsASlowServerModern"),
}
