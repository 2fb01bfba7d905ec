module github.com/respawn-mcp/respawn

go 1.26

require github.com/looplab/fsm v1.0.3
