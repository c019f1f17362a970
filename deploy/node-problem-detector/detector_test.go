package npd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// config is node-problem-detector's configuration of a custom plugin.
type config struct {
	Plugin       string `json:"plugin"`
	PluginConfig struct {
		InvokeInterval                          string `json:"invoke_interval"`
		Timeout                                 string `json:"timeout"`
		MaxOutputLength                         *int   `json:"max_output_length"`
		Concurrency                             *int   `json:"concurrency"`
		EnableMessageChangeBasedConditionUpdate bool   `json:"enable_message_change_based_condition_update"`
		SkipInitialStatus                       bool   `json:"skip_initial_status"`
	} `json:"pluginConfig"`
	Source           string      `json:"source"`
	MetricsReporting *bool       `json:"metricsReporting"`
	Conditions       []condition `json:"conditions"`
	Rules            []rule      `json:"rules"`
}

type condition struct {
	Type    string `json:"type"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

type rule struct {
	Type      string   `json:"type"`
	Condition string   `json:"condition"`
	Reason    string   `json:"reason"`
	Path      string   `json:"path"`
	Args      []string `json:"args"`
	Timeout   string   `json:"timeout"`
}

// The results of a plugin, by its exit code.
const (
	ok      = 0
	problem = 1
	unknown = 2
)

// maxPipe is how much of a plugin's output is read; the rest is thrown away.
const maxPipe = 4 << 10

// detector runs plugins by the rules of node-problem-detector: those of
// pkg/custompluginmonitor there, without its reporting to the API.
type detector struct {
	config         config
	invoke, global time.Duration
	// conditions are the states by type.
	conditions map[string]*state
	// events are the reasons of what temporary problems have sent.
	events []string
}

// state is that of a condition; updates is how often it has changed: each is an event on the
// node.
type state struct {
	status, reason, message string
	updates                 int
}

// newDetector reads a configuration as node-problem-detector does when it
// starts: what it refuses there keeps it from starting. A field that it has not
// is refused here too; there it would go unnoticed.
func newDetector(text string) (*detector, error) {
	d := &detector{conditions: map[string]*state{}}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&d.config); err != nil {
		return nil, err
	}
	c := &d.config
	if c.Plugin != "custom" {
		return nil, fmt.Errorf("the plugin is %q: only custom is known", c.Plugin)
	}
	if c.Source == "" {
		return nil, errors.New("there is no source")
	}
	var err error
	if d.global, err = duration(c.PluginConfig.Timeout, 5*time.Second); err != nil {
		return nil, err
	}
	if d.invoke, err = duration(c.PluginConfig.InvokeInterval, 30*time.Second); err != nil {
		return nil, err
	}
	if c.PluginConfig.MaxOutputLength == nil {
		length := 80
		c.PluginConfig.MaxOutputLength = &length
	}
	for _, c := range c.Conditions {
		d.conditions[c.Type] = &state{status: "False", reason: c.Reason, message: c.Message}
	}
	for _, r := range c.Rules {
		limit, err := duration(r.Timeout, d.global)
		if err != nil {
			return nil, err
		}
		if limit > d.global {
			return nil, fmt.Errorf("the rule's timeout %s is greater than the global %s", limit, d.global)
		}
		known := slices.ContainsFunc(c.Conditions, func(c condition) bool { return c.Type == r.Condition })
		switch {
		case r.Type != "permanent" && r.Type != "temporary":
			return nil, fmt.Errorf("the rule's type is %q", r.Type)
		case r.Type == "permanent" && !known:
			return nil, fmt.Errorf("the permanent problem %s has no default condition", r.Condition)
		}
	}
	return d, nil
}

func duration(text string, otherwise time.Duration) (time.Duration, error) {
	if text == "" {
		return otherwise, nil
	}
	return time.ParseDuration(text)
}

// run runs a rule's plugin, with an environment: the program at its path is
// replaced by another.
func (d *detector) run(r rule, program string, env []string) (result int, message string, err error) {
	limit, err := duration(r.Timeout, d.global)
	if err != nil {
		return 0, "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, r.Args...)
	cmd.Env = env
	// Its whole process group is killed at the end of its time.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var stdout bytes.Buffer
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return 0, "", err
	}
	if err := cmd.Start(); err != nil {
		return 0, "", err
	}
	if _, err := io.Copy(&stdout, io.LimitReader(pipe, maxPipe)); err != nil {
		return 0, "", err
	}
	if _, err := io.Copy(io.Discard, pipe); err != nil {
		return 0, "", err
	}
	_ = cmd.Wait() // its exit status is read below
	message = strings.TrimSpace(stdout.String())
	if ctx.Err() != nil {
		message = fmt.Sprintf("Timeout when running plugin %q: state - %s. output - %q", r.Path, cmd.ProcessState, message)
	}
	message = message[:min(len(message), *d.config.PluginConfig.MaxOutputLength)]
	switch cmd.ProcessState.ExitCode() {
	case ok, problem:
		result = cmd.ProcessState.ExitCode()
	default:
		result = unknown
	}
	d.update(r, result, message)
	return result, message, nil
}

// update does what a rule's result does. A temporary problem is an event each time that the
// result is not 0. Of a permanent one only a change counts; a rule that finds nothing ends the
// problem of another rule with the same condition.
func (d *detector) update(r rule, result int, message string) {
	if r.Type != "permanent" {
		if result != ok {
			d.events = append(d.events, r.Reason)
		}
		return
	}
	c := d.conditions[r.Condition]
	status := [...]string{ok: "False", problem: "True", unknown: "Unknown"}[result]
	changed := status != c.status || status == "True" &&
		(c.reason != r.Reason || d.config.PluginConfig.EnableMessageChangeBasedConditionUpdate && message != c.message)
	if changed {
		c.status, c.reason, c.message = status, r.Reason, message
		c.updates++
	}
}
