package health

import (
	"fmt"
	"time"
)

const (
	// startErrors is how many calls must have failed in a row, startSlow how long
	// one of them must have taken: what is wrong with one pod fails at once.
	startErrors = 3
	startSlow   = 10 * time.Second
	// startPods is how many pods must wait for a sandbox where all fail at once.
	startPods = 2
	// startRetried is how long after the last failure a reason still counts: the
	// kubelet tries each pod again after 10 to 15 s.
	startRetried = time.Minute
)

// podStartsFailing speaks of what the kubelet cannot start.
var podStartsFailing = Reason{
	ID: PodStartsFailing, Layer: LayerPods, Severity: SeverityWarning,
	Meaning: "The kubelet's calls that start pods fail, although every read is answered: the node is Ready and starts nothing.",
	Needs:   "the kubelet's own metrics (`--kubelet-metrics-url`): run_podsandbox or create_container fails and has not succeeded since. A single pod that cannot be started is none: several pods wait for a sandbox, or a call took long before it failed.",
	Thresholds: []Threshold{
		{"%s calls in a row failed", startErrors},
		{"one of them took %s", startSlow},
		{"or %s pods wait for a sandbox (run_podsandbox, kubelet 1.27 and newer)", startPods},
		{"ends with the first that succeeds, or %s after the last that failed", startRetried},
	},
	Next: "Read the runtime's error in the kubelet's log: `journalctl -u kubelet --since -10min | grep -e RunPodSandbox -e CreateContainer`.",
	Steps: []string{
		"`journalctl -u kubelet --since -10min | grep -e RunPodSandbox -e CreateContainer | tail`: the runtime's own error, and the pods.",
		"\"name … is reserved for …\": an earlier call ran into the kubelet's deadline and has not ended in the runtime; each retry fails at once until it does. No list shows such a sandbox.",
		"`ps -eo pid,ppid,stat,etime,args --sort etime | grep -e '[r]unc' -e '[c]ni' -e '[s]him'`: what has run for as long as that: a CNI plugin, runc, a shim.",
	},
	Restart: HelpsMaybe, RestartNote: "It ends the calls that have not ended, and with them their reserved names. It does not help while what they wait for is still there: a network plugin, a disk.",
	match: func(w *view) []string {
		k := w.f.Evidence.Kubelet
		if k == nil {
			return nil
		}
		var out []string
		if waiting, fails := w.sandboxesFail(k); fails {
			out = append(out, w.startText("run_podsandbox", k.Sandboxes))
			if waiting >= startPods {
				out = append(out, fmt.Sprintf("%d pods wait for a sandbox", waiting))
			}
		}
		if c := k.Containers; w.startsFail(c) && c.Longest >= startSlow {
			out = append(out, w.startText("create_container", c))
		}
		if out == nil {
			return nil
		}
		return append(out, fmt.Sprintf("last answer of the runtime %s ago", short(w.age(w.lastAnswer))))
	},
}

// sandboxesFail reports whether no sandbox can be started for a reason that is not
// one pod's own, and how many pods wait for one, as far as that is known.
func (w *view) sandboxesFail(k *Kubelet) (waiting int, fails bool) {
	known := k.WaitingPods != nil
	if known {
		waiting = *k.WaitingPods
	}
	if !w.startsFail(k.Sandboxes) || known && waiting == 0 {
		return waiting, false
	}
	return waiting, waiting >= startPods || k.Sandboxes.Longest >= startSlow
}

func (w *view) startsFail(c *StartCalls) bool {
	return c != nil && c.Errors >= startErrors && w.age(c.LastError) <= startRetried
}

func (w *view) startText(operation string, c *StartCalls) string {
	text := fmt.Sprintf("%s: %d calls of the kubelet failed and none succeeded for %s", operation, c.Errors, short(w.age(c.Since)))
	if c.Longest >= startSlow {
		text += fmt.Sprintf("; one took %s, as a call that runs into its deadline", short(c.Longest))
	}
	return text
}
