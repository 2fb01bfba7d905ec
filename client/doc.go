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
// A call ends in exactly one of four ways: with its result, with the server's own
// error ([*PeerError]), with an answer that is not what its method promises
// ([*DecodeError]), or without an answer ([*LostError]). A LostError says in its
// Outcome whether the request may have run, and its cause says why it was lost;
// [OutcomeOf] answers for any error. A call that may have changed the world is
// never made twice.
//
// While nobody serves, a call is refused at once with [*NotServingError], or held
// until somebody does under Config.WaitForReady. With Config.RetryLost, requests
// that only read are sent again to the replacement, under their original id and
// deadline.
//
// # Eras
//
// The client speaks 2026-07-28 and, through the initialize handshake, 2025-11-25
// and earlier. It asks once which era a server is of, remembers it, and notices
// when a replacement speaks another.
package client
