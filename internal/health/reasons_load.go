package health

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/plegd/plegd/internal/facts"
)

func relistSlow(s *signals) (out lines) {
	out = append(s.slowLists(), s.slowInspections()...)
	t := s.f.Modelled.Estimated
	evented := s.f.Config.KubeletRelistPeriod > 0
	out.addIf(evented && !t.IsZero(), "the kubelet relies on events, and may have relisted last %s ago: its next relist may have hung", s.ago(t))
	k := s.f.Evidence.Kubelet
	unknown := k == nil || k.Version == ""
	out.addIf(out != nil && unknown && !evented && !t.IsZero(), "a kubelet before 1.36 lists again for each changed pod, and was last seen "+
		"%s ago; this one's version is not known", s.ago(t))
	return out
}

// slowLists is the evidence that both lists of two relists in a row were slow.
func (s *signals) slowLists() (out lines) {
	quicker := s.bothLists()
	if s.near(RelistSlow, quicker.Seconds(), SlowListThreshold.Seconds(), 1, slowStill) {
		out.add("the lists of the last relist took %s", facts.Seconds(s.f.Relist.RecentLists(1)[0]))
	}
	return out
}

// bothLists is what both lists took in each of the last two relists, 0 before the second one.
func (s *signals) bothLists() time.Duration {
	lists := s.f.Relist.RecentLists(2)
	if len(lists) < 2 {
		return 0
	}
	return slices.Min(lists)
}

// slowBySize is the time from which lists are slow for their size: slowCall for each usualLists.
func (s *signals) slowBySize() time.Duration {
	bytes := s.f.Calls[string(facts.PhaseListPodSandbox)].Bytes + s.f.Calls[string(facts.PhaseListContainers)].Bytes
	return slowCall * time.Duration(max(1, bytes/usualLists))
}

// sizeExplains reports whether relists are slow for the size of their lists alone: usual ones would be quick here.
func (s *signals) sizeExplains() bool {
	return s.kubelet.PLEGHealthy && s.slowInspections() == nil && s.bothLists() < s.slowBySize()
}

// slowInspections is the evidence that the inspections of a relist take long.
func (s *signals) slowInspections() (out lines) {
	last := s.f.Relist.Last
	if last != nil {
		inspections := last.Serial - last.ListPodSandbox - last.ListContainers
		burst := last.Inspected >= burstPods && last.Serial >= burstTakes
		out.addIf(inspections > SlowRelistThreshold || burst,
			"the last relist's calls take %s one after another (%s inspected)", facts.Seconds(last.Serial),
			facts.Count(last.Inspected, "pod", "pods"))
	}
	relist := s.f.Relist.InFlight
	if relist != nil && relist.Pods >= burstPods && relist.Waited(s.moment) >= burstTakes {
		out.add("%d of %d pods inspected in %s", relist.Inspected, relist.Pods, s.ago(relist.PhaseStart))
	}
	burst := s.inspecting() >= burstTakes && float64(s.f.Modelled.Inspecting) >= s.band(RelistSlow, burstPods, 1)
	if burst || s.inspecting() > SlowRelistThreshold {
		out.text(s.modelText())
	}
	return out
}

// relistRuleFails reports whether the kubelet's relist is too old: then slowness has turned the node NotReady.
func (s *signals) relistRuleFails() bool { return !s.starting && !s.kubelet.PLEGHealthy }

// modelText states for how long the kubelet's relist has been inspecting, "" while that is not long.
func (s *signals) modelText() string {
	if s.inspecting() < inspectHangAfter {
		return ""
	}
	text := "the kubelet, one call after another, has been inspecting for " + facts.Seconds(s.inspecting())
	if n := s.f.Modelled.Inspecting; n > 0 {
		text += fmt.Sprintf(", with %s to go", facts.Count(n, "pod", "pods"))
	}
	return text
}

// inspecting is how long the modelled kubelet has been inspecting pods in its relist under way.
func (s *signals) inspecting() time.Duration {
	if s.f.Modelled.InspectingSince.IsZero() {
		return 0
	}
	return s.age(s.f.Modelled.InspectingSince)
}

func fdsRunningOut(s *signals) lines {
	p := s.process
	if !p.Alive || p.MaxFDs <= 0 ||
		!s.near(FDsRunningOut, float64(p.OpenFDs), float64(p.MaxFDs), limitNear, limitCalm) {
		return nil
	}
	return line("fds %d of %d", p.OpenFDs, p.MaxFDs)
}

func tooMany(s *signals) (out lines) {
	n := facts.Total(cmp.Or(s.f.Pods, &facts.Pods{}).Containers)
	for _, op := range []facts.Phase{facts.PhaseListPodSandbox, facts.PhaseListContainers} {
		c := s.f.Calls[string(op)]
		if c.LastErr != nil && c.LastErr.TooMany && c.LastFailed.After(c.LastOK) {
			return append(line("%s: %s; %d bytes", op, c.LastErr.Message, c.Bytes), "what runs here is as plegd last knew it")
		}
		if c.Bytes > messageLimit || !s.near(TooManyContainers, float64(c.Bytes), messageLimit, limitNear, limitCalm) {
			continue
		}
		out.add("%s is %d of %d bytes", op, c.Bytes, messageLimit)
		if op == facts.PhaseListContainers && n > 0 {
			out.add("%d containers of %d bytes; %d more fit", n, c.Bytes/n, (messageLimit-c.Bytes)/max(c.Bytes/n, 1))
		}
	}
	out.addIf(s.near(TooManyContainers, float64(n), tooManyContainers, 1, tooManyStill), "%d containers", n)
	return out
}

func eventStreamBroken(s *signals) (out lines) {
	e := s.f.Events
	if e == nil || e.Phase != "broken" || s.f.Relist.Failures > 0 || !e.FellBack && e.Failures < streamFailures {
		return nil
	}
	out.add("the event stream has failed %d times, the last %s ago", e.Failures, s.ago(e.LastFailed))
	if e.LastErr != nil {
		out.add("%s: %s", e.LastErr.Code, e.LastErr.Message)
	}
	out.addIf(e.FellBack, "plegd relists every %s until a stream holds", s.f.Config.RelistPeriod)
	return out
}

// nodePressure names the node's pressure if lists are slow for their size or connections wait: a busy node is no fault.
func nodePressure(s *signals) (out lines) {
	n := s.node
	slow := s.bothLists() >= s.slowBySize()
	if !slow && s.link != linkQueueFull && !s.queueFull && !s.notAccepting {
		return nil
	}
	exceeds := func(value, limit float64) bool { return s.near(NodePressure, value, limit, 1, calmShare) }
	if slow && exceeds(n.CPUSome, cpuSome) && s.busyCPUs != "" {
		out.add("CPU pressure: some %.0f %% of the last 10s", n.CPUSome)
		out.text(s.busyCPUs)
	}
	out.addIf(exceeds(n.MemoryFull, memFull), "memory pressure: full %.0f %% of the last 10s", n.MemoryFull)
	out.addIf(exceeds(n.IOFull, ioFull), "I/O pressure: full %.0f %% of the last 10s", n.IOFull)
	return out
}

// busyCPUsText returns what shows that CPUs are short, "" for nothing: pressure also counts containers' quotas. If the
// CPUs are idle for half of the time, the cause is not the node: a tracer, a quota.
func (s *signals) busyCPUsText() string {
	p := s.process
	idle := s.node.CPUIdle
	waits := p.Alive && p.Delay >= waitMost && p.Delay > p.CPU && !s.quotaTakesTime
	if idle >= 0 && idle <= s.band(NodePressure, idleMost, idleStill) {
		return fmt.Sprintf("the CPUs are idle for %.0f %%", 100*idle)
	}
	if idle < idleEnough && waits {
		return fmt.Sprintf("the runtime waited for a CPU for %.2gs a second, and ran for %.2gs", p.Delay, p.CPU)
	}
	return ""
}

func storageFull(s *signals) (out lines) {
	times := int64(s.band(RuntimeStorageFull, 1, facts.StorageStill))
	for _, f := range cmp.Or(s.f.Evidence.Storage, &facts.Storage{}).FileSystems {
		if f.Lacks(times) {
			out.text(f.String())
		}
	}
	return out
}

// storageNext is the step where a directory of the runtime is not at its path any more, "" elsewhere.
func (s *signals) storageNext() string {
	for _, f := range cmp.Or(s.f.Evidence.Storage, &facts.Storage{}).FileSystems {
		if f.Lost {
			return fmt.Sprintf("Bring back what was at %[1]s (`findmnt -T %[1]s`): mount its file system again, unmount what hides "+
				"it, or move the directory back. Do not restart the runtime before: it would begin without its pods and images.",
				f.Directory)
		}
	}
	return ""
}
