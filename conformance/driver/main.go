//lint:file-ignore SA1019 the suite tests deprecated features too

// Driver is the client that the official conformance suite drives: it does what
// each scenario asks of a client, with package client and nothing of its own.
//
// The suite puts the server's URL last on the command line and names the scenario
// in MCP_CONFORMANCE_SCENARIO; some give details in MCP_CONFORMANCE_CONTEXT.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/respawn-mcp/respawn/client"
	"github.com/respawn-mcp/respawn/transports/streamable"
)

// scenarios are what the suite may ask for.
var scenarios = map[string]func(context.Context, *client.Client) error{
	"initialize":                          listTools,
	"request-metadata":                    listTools,
	"json-schema-ref-no-deref":            listTools,
	"tools_call":                          addNumbers,
	"elicitation-sep1034-client-defaults": calls("test_client_elicitation_defaults"),
	"sse-retry":                           calls("test_reconnection"),
	"sep-2322-client-request-state": calls(
		"test_mrtr_echo_state", "test_mrtr_no_state", "test_mrtr_unrelated", "test_mrtr_no_result_type"),
	"http-standard-headers":            useFirstOfEach,
	"http-custom-headers":              callAsTold,
	"http-invalid-tool-headers":        callSurvivors,
	"json-schema-2020-12-preservation": echoSchema,
}

// patience bounds one scenario; the suite's own bound is 30 s.
const patience = 25 * time.Second

func main() {
	if err := run(os.Args, os.Getenv("MCP_CONFORMANCE_SCENARIO")); err != nil {
		fmt.Fprintln(os.Stderr, "driver:", err)
		os.Exit(1)
	}
}

func run(args []string, scenario string) (err error) {
	do, ok := scenarios[scenario]
	if !ok || len(args) < 2 {
		return fmt.Errorf("no scenario %q, or no URL", scenario)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := client.Connect(ctx, streamable.Endpoint(args[len(args)-1], nil), config())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close(ctx)) }()
	return do(ctx, c)
}

// config declares all that a client can and answers as the scenarios expect.
func config() *client.Config {
	return &client.Config{
		Info:   &mcp.Implementation{Name: "respawn-conformance-driver", Version: "1"},
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		ListRoots: func(context.Context, *mcp.ListRootsParams) (*mcp.ListRootsResult, error) {
			return &mcp.ListRootsResult{Roots: []*mcp.Root{{URI: "file:///driver", Name: "driver"}}}, nil
		},
		CreateMessage: func(context.Context, *mcp.CreateMessageParams) (*mcp.CreateMessageResult, error) {
			return &mcp.CreateMessageResult{Role: "assistant", Model: "none", Content: &mcp.TextContent{Text: "yes"}}, nil
		},
		Elicit: func(_ context.Context, p *mcp.ElicitParams) (*mcp.ElicitResult, error) {
			answer := &mcp.ElicitResult{Action: "accept"}
			if schema, ok := p.RequestedSchema.(map[string]any); ok {
				if properties, ok := schema["properties"].(map[string]any); ok && properties["confirmed"] != nil {
					answer.Content = map[string]any{"confirmed": true}
				}
			}
			return answer, nil
		},
	}
}

func listTools(ctx context.Context, c *client.Client) error {
	_, err := c.ListTools(ctx, nil)
	return err
}

func addNumbers(ctx context.Context, c *client.Client) error {
	if err := listTools(ctx, c); err != nil {
		return err
	}
	_, err := c.CallTool(ctx, &mcp.CallToolParams{Name: "add_numbers", Arguments: map[string]int{"a": 5, "b": 3}})
	return err
}

// calls lists the tools and calls the named ones, all of them, whatever one of
// them answers.
func calls(names ...string) func(context.Context, *client.Client) error {
	return func(ctx context.Context, c *client.Client) error {
		err := listTools(ctx, c)
		for _, name := range names {
			_, callErr := c.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: struct{}{}})
			err = errors.Join(err, callErr)
		}
		return err
	}
}

func useFirstOfEach(ctx context.Context, c *client.Client) error {
	tools, err := c.ListTools(ctx, nil)
	if err != nil {
		return err
	}
	if len(tools.Tools) > 0 {
		_, err = c.CallTool(ctx, &mcp.CallToolParams{Name: tools.Tools[0].Name, Arguments: struct{}{}})
	}
	resources, listErr := c.ListResources(ctx, nil)
	if err = errors.Join(err, listErr); listErr == nil && len(resources.Resources) > 0 {
		_, readErr := c.ReadResource(ctx, &mcp.ReadResourceParams{URI: resources.Resources[0].URI})
		err = errors.Join(err, readErr)
	}
	prompts, listErr := c.ListPrompts(ctx, nil)
	if err = errors.Join(err, listErr); listErr == nil && len(prompts.Prompts) > 0 {
		_, getErr := c.GetPrompt(ctx, &mcp.GetPromptParams{Name: prompts.Prompts[0].Name})
		err = errors.Join(err, getErr)
	}
	return err
}

// callAsTold makes the calls in the scenario's context. Arguments stay the bytes
// that came, so that numbers are exact.
func callAsTold(ctx context.Context, c *client.Client) error {
	var told struct {
		ToolCalls []struct {
			Name      string          `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
		} `json:"toolCalls"`
	}
	if err := json.Unmarshal([]byte(os.Getenv("MCP_CONFORMANCE_CONTEXT")), &told); err != nil {
		return fmt.Errorf("the scenario's context: %w", err)
	}
	err := listTools(ctx, c)
	for _, call := range told.ToolCalls {
		_, callErr := c.CallTool(ctx, &mcp.CallToolParams{Name: call.Name, Arguments: call.Arguments})
		err = errors.Join(err, callErr)
	}
	return err
}

func callSurvivors(ctx context.Context, c *client.Client) error {
	tools, err := c.ListTools(ctx, nil)
	if err != nil {
		return err
	}
	for _, tool := range tools.Tools {
		_, callErr := c.CallTool(ctx, &mcp.CallToolParams{Name: tool.Name, Arguments: map[string]string{"region": "us-west1"}})
		err = errors.Join(err, callErr)
	}
	return err
}

func echoSchema(ctx context.Context, c *client.Client) error {
	resp, err := c.Do(ctx, client.Request{Method: "tools/list"})
	if err != nil {
		return err
	}
	var page struct {
		Tools []struct {
			Name   string          `json:"name"`
			Schema json.RawMessage `json:"inputSchema"`
		} `json:"tools"`
	}
	if err := json.Unmarshal(resp.Result, &page); err != nil {
		return err
	}
	for _, tool := range page.Tools {
		if tool.Name == "json_schema_2020_12_tool" {
			_, err := c.CallTool(ctx, &mcp.CallToolParams{
				Name: "json_schema_echo", Arguments: map[string]json.RawMessage{"schema": tool.Schema},
			})
			return err
		}
	}
	return errors.New("no json_schema_2020_12_tool is listed")
}
