// Package conformance is how respawn is held to its word.
//
// [TestTable] verifies a lifecycle table, and [Life] one run of a lifecycle,
// whoever made it; [TestTransport] verifies a transport against its contract. The
// [Register] lists what respawn must do and the tests that prove it;
// docs/conformance.md is generated from it.
package conformance
