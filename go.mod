module github.com/respawn-mcp/respawn

go 1.26

require (
	github.com/google/go-cmp v0.7.0
	github.com/looplab/fsm v1.0.3
)

require pgregory.net/rapid v1.3.0
