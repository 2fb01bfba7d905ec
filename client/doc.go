// Package client is an MCP client whose connection outlives its server.
//
//	c, err := client.Connect(ctx, stdio.Command("npx", "-y", "some-server"), nil)
//
// A server that dies is started again within a budget; listeners stay; what can
// be said about each request in flight is said by its error. [Connect] fails
// fast and tries nothing twice: supervision begins when the server has served.
//
// # What becomes of a call
//
// A call ends in exactly one of these ways: with its result; with the server's own
// error ([*PeerError]); with an answer that is not what its method promises
// ([*DecodeError]) or that asks for input which could not be given
// ([*InputError]); or without an answer ([*LostError]). A LostError says in its
// Outcome whether the request may have run, and its cause says why it was lost;
// [OutcomeOf] answers for any error. A request that can't be sent as it is ends
// with an [*InvalidRequestError]. That holds for every method that makes a request.
//
// A call that may have changed the world is never made twice.
//
// # What is kept when the server dies
//
// The client and everything registered with it: callbacks, handlers,
// subscriptions ([Client.Listen]), and what a legacy server was told of log level
// and resource subscriptions, which its replacement is told before anybody may
// call. While nobody serves, a call is refused at once with [*NotServingError], or
// held until somebody does under Config.WaitForReady. Of the requests in flight,
// those that only read are made again under Config.RetryLost; the others fail. A
// deadline is never extended.
//
// # Eras
//
// The client speaks 2026-07-28 (modern) and, through the initialize handshake,
// 2025-11-25 and earlier (legacy). It asks once which era a server is of, remembers
// it, and notices when a replacement speaks another. Nothing of this package asks
// its user to know.
package client
