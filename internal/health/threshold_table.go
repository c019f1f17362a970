package health

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/kubelet"
)

// Threshold is a number with which the rules of a reason compare an observation.
type Threshold struct {
	What   string `json:"what"` // what is compared, and how
	Value  string `json:"value"`
	Source string `json:"source,omitempty"` // "" for a number that was chosen: the tested faults and quiet cases hold with it
}

// The units of a value beside time.Duration.
type (
	share   float64 // of 1
	percent float64
	amount  int64 // of bytes
)

// valueText is a value with its unit.
func valueText(value any) string {
	switch v := value.(type) {
	case time.Duration:
		text := v.String()
		if v >= time.Minute {
			text = strings.TrimSuffix(text, "0s")
		}
		return text
	case share:
		return fmt.Sprintf("%g%%", 100*float64(v))
	case percent:
		return fmt.Sprintf("%g%%", float64(v))
	case amount:
		return strings.Replace(facts.SizeText(int64(v)), ".0 ", " ", 1)
	}
	return fmt.Sprint(value)
}

// thresholdsOf returns the numbers of a reason, in the order of the table.
func thresholdsOf(id string) []Threshold {
	out := []Threshold{}
	for _, t := range thresholds {
		if slices.Contains(t.Reasons, id) {
			out = append(out, Threshold{What: t.What, Value: valueText(t.Value), Source: t.Source})
		}
	}
	return out
}

// slowByCPU are the reasons that explain slow lists, hanging those that state that a list hangs.
var (
	slowByCPU = []string{RuntimeThrottled, RuntimeStarved}
	hanging   = []string{RuntimeUnresponsive, RuntimeListStall}
	unserved  = []string{AcceptFDExhausted, AcceptStalled}
)

// thresholds is the one table of them. The pages have its rows (make generate).
var thresholds = []struct {
	What    string
	Value   any
	Source  string
	Reasons []string
}{
	// Calls.
	{What: "a list unanswered for", Value: facts.HangAfter, Reasons: hanging},
	{What: "longer for each MiB of its last answer", Value: hangPerMiB, Reasons: hanging},
	{What: "and for three times the median of the last relists' lists", Value: recentLists, Reasons: hanging},
	{What: "in any case after", Value: hangSurely, Reasons: hanging},
	{What: "later while its CPU quota throttles it", Value: quotaMeasured, Reasons: hanging},
	{What: "Version unanswered for", Value: hangProbeAfter, Reasons: []string{RuntimeUnresponsive}},
	{What: "to blame a container", Value: containerStalledAfter, Reasons: []string{RuntimeListStall}},
	{What: "Status unanswered for", Value: statusHangAfter, Reasons: []string{RuntimeNotReady}},
	{What: "Version unanswered for", Value: versionReasonAfter, Reasons: []string{NodeStatusStalled}},
	{What: "unanswered for", Value: inspectHangAfter, Reasons: []string{PodInspectionStall}},
	{What: "or failures in a row", Value: failingInspections, Reasons: []string{PodInspectionStall}},
	{What: "a call unanswered for", Value: slowCall, Reasons: []string{RuntimeFrozen}},
	{What: "an answer of at least", Value: amount(messageLimit), Source: "k8s.io/cri-client, maxMsgSize", Reasons: []string{ListResponseTooLarge}},
	{What: "both lists take", Value: SlowListThreshold, Reasons: []string{RelistSlow}},
	{What: "ends below, of that", Value: share(slowStill), Reasons: []string{RelistSlow}},
	{What: "the inspections take", Value: SlowRelistThreshold, Source: "KubeletPlegDurationHigh of kubernetes-mixin", Reasons: []string{RelistSlow}},
	{What: "or pods inspected in one relist", Value: burstPods, Reasons: []string{RelistSlow}},
	{What: "which takes", Value: burstTakes, Reasons: []string{RelistSlow}},
	{What: "beyond --rpc-timeout or --relist-period", Value: loopLate, Reasons: []string{RelistLoopStalled}},
	{What: "nothing explains it for", Value: unknownAfter, Reasons: []string{Unknown}},
	{What: "until, for Status", Value: kubelet.RuntimeDownAfter, Source: "kubelet.go, maxWaitForContainerRuntime", Reasons: []string{Starting}},
	{What: "a node's first network may take", Value: networkStart, Reasons: []string{NetworkNotReady}},

	// Connections.
	{What: "a connection pending for", Value: queueWaits, Reasons: []string{AcceptStalled}},
	{What: "where the queue is not readable", Value: queueUnseenWaits, Reasons: []string{AcceptStalled}},
	{What: "not this soon after a stop", Value: acceptsAfterStop, Reasons: []string{AcceptStalled}},
	{What: "not while the queue fell within", Value: queueFalls, Reasons: unserved},
	{What: "no free descriptor within", Value: acceptsAgain, Source: "grpc-go's Serve retries within 1s", Reasons: []string{AcceptFDExhausted}},
	{What: "something else at the path for", Value: takeoverGracePeriod, Reasons: []string{RuntimeSocketUnlinked}},
	{What: "failures in a row", Value: streamFailures, Source: "eventedPlegMaxStreamRetries", Reasons: []string{EventStreamBroken}},

	// The runtime's process.
	{What: "in D without having run for, while lists are slow", Value: blockedAfter, Reasons: []string{RuntimeStorageStall}},
	{What: "waits for the lock for, while lists are slow", Value: lockedAfter, Reasons: []string{RuntimeStorageLocked}},
	{What: "while lists are answered", Value: whileServing, Reasons: []string{RuntimeStorageStall, RuntimeStorageLocked, RuntimeMemoryLimited}},
	{What: "has not run, or in D mostly, for", Value: whileServing, Reasons: []string{RuntimeThreadStuck}},
	{What: "io.pressure some avg10", Value: percent(ioPressure), Reasons: []string{RuntimeStorageStall}},
	{What: "or stops", Value: stopsMany, Reasons: []string{RuntimeFrozen}},
	{What: "within", Value: stopsWithin, Reasons: []string{RuntimeFrozen}},
	{What: "ends after the last stop", Value: stopsOver, Reasons: []string{RuntimeFrozen}},
	{What: "starts within 5m", Value: restartLoops[0].starts, Reasons: []string{RuntimeRestarting}},
	{What: "or within 30m", Value: restartLoops[1].starts, Reasons: []string{RuntimeRestarting}},
	{What: "ends at the earliest after", Value: restartsOver, Reasons: []string{RuntimeRestarting}},
	{What: "younger than", Value: youngFor, Reasons: []string{RuntimeStarting}},
	{What: "younger than, where it listens", Value: startsFor, Reasons: []string{RuntimeStarting}},
	{What: "of RLIMIT_NOFILE", Value: share(limitNear), Reasons: []string{FDsRunningOut}},
	{What: "ends below", Value: share(limitCalm), Reasons: []string{FDsRunningOut}},

	// CPU, memory and I/O of its cgroup.
	{What: "time throttled", Value: share(throttledShare), Reasons: []string{RuntimeThrottled}},
	{What: "continues at, of time or periods", Value: share(throttledStill), Reasons: []string{RuntimeThrottled}},
	{What: "waits for a CPU, of each second", Value: share(starvedDelay), Reasons: []string{RuntimeStarved}},
	{What: "of the time in which it could run", Value: share(starvedShare), Reasons: []string{RuntimeStarved}},
	{What: "each time", Value: starvedWait, Reasons: []string{RuntimeStarved}},
	{What: "its quota took no time for", Value: throttledLately, Reasons: []string{RuntimeStarved}},
	{What: "one of the last three relists' lists takes", Value: slowCall, Reasons: slices.Concat(slowByCPU, []string{RuntimeFrozen})},
	{What: "ends when none has, of the last relists", Value: throttledLists, Reasons: slowByCPU},
	{What: "of memory.high, memory.max or memory.limit_in_bytes", Value: share(memoryNear), Reasons: []string{RuntimeMemoryLimited}},
	{What: "memory.pressure full avg10", Value: percent(memoryPressure), Reasons: []string{RuntimeMemoryLimited}},
	{What: "or pages refaulted a second, without that file", Value: refaultsMany, Reasons: []string{RuntimeMemoryLimited}},
	{What: "critical while one of the last ten relists' lists took", Value: SlowListThreshold, Reasons: slices.Concat(slowByCPU, []string{KernelLimitReached})},

	// The node.
	{What: "of pids.max and fs.mount-max", Value: share(pidsFull), Reasons: []string{KernelLimitReached}},
	{What: "of pid_max, threads-max and file-max", Value: share(nodeFull), Reasons: []string{KernelLimitReached}},
	{What: "of the threads at which Go ends a program", Value: share(threadsNear), Source: "runtime/debug.SetMaxThreads: 10000", Reasons: []string{KernelLimitReached}},
	{What: "CPU some avg10", Value: percent(cpuSome), Reasons: []string{NodePressure}},
	{What: "with CPUs idle for at most", Value: share(idleMost), Reasons: []string{NodePressure}},
	{What: "or a runtime that waits for a CPU, of each second", Value: share(waitMost), Reasons: []string{NodePressure}},
	{What: "memory full avg10", Value: percent(memFull), Reasons: []string{NodePressure}},
	{What: "I/O full avg10", Value: percent(ioFull), Reasons: []string{NodePressure}},
	{What: "ends below, of each", Value: share(calmShare), Reasons: []string{NodePressure}},
	{What: "the lists of two relists take", Value: slowCall, Reasons: []string{NodePressure}},
	{What: "containers", Value: tooManyContainers, Reasons: []string{TooManyContainers}},
	{What: "ends below, of that", Value: share(tooManyStill), Reasons: []string{TooManyContainers}},
	{What: "or of the kubelet's 16 MiB", Value: share(limitNear), Source: "k8s.io/cri-client, maxMsgSize", Reasons: []string{TooManyContainers}},
	{What: "ends below", Value: share(limitCalm), Reasons: []string{TooManyContainers}},

	// File systems.
	{What: "free space for root below", Value: amount(facts.FullBytes), Reasons: []string{RuntimeStorageFull}},
	{What: "or below, the smaller of both", Value: share(1. / facts.FullShare), Reasons: []string{RuntimeStorageFull}},
	{What: "at least", Value: amount(facts.MinFullBytes), Reasons: []string{RuntimeStorageFull}},
	{What: "free inodes below", Value: facts.FullInodes, Reasons: []string{RuntimeStorageFull}},
	{What: "or below, the smaller of both", Value: share(1. / facts.FullShare), Reasons: []string{RuntimeStorageFull}},
	{What: "at least", Value: facts.MinFullInodes, Reasons: []string{RuntimeStorageFull}},
	{What: "ends above, times as much", Value: facts.StorageStill, Reasons: []string{RuntimeStorageFull}},

	// Pods and the kubelet.
	{What: "stopped or frozen for", Value: stoppedShim, Reasons: []string{ShimStuck}},
	{What: "blocked in the kernel for", Value: blockedShim, Reasons: []string{ShimStuck}},
	{What: "runs for", Value: oldHelper, Reasons: []string{RuntimeHelperStuck}},
	{What: "failures in a row", Value: startErrors, Reasons: []string{PodStartsFailing}},
	{What: "one of which took", Value: startSlow, Reasons: []string{PodStartsFailing}},
	{What: "or pods that wait for a sandbox", Value: startPods, Reasons: []string{PodStartsFailing}},
	{What: "ends after the last failure", Value: startRetried, Source: "pod_workers.go, backOffPeriod", Reasons: []string{PodStartsFailing}},
	{What: "healthz fails for, and the runtime is good for", Value: kubeletFails, Reasons: []string{KubeletStalled}},
	{What: "or its own last seen is old", Value: kubeletOld, Source: "above the 300s of KEP-3386", Reasons: []string{KubeletStalled}},
	{What: "a pause of", Value: kubelet.PauseNoticed, Source: "node_lifecycle_controller.go: nodeMonitorGrace less a lease period", Reasons: []string{NodePaused}},
	{What: "refused for", Value: kubeletGone, Reasons: []string{KubeletDown}},
	{What: "no request answered for", Value: apiLostAfter, Reasons: []string{KubeletDisconnected}},
	{What: "or since the last answer", Value: apiSilentAfter, Source: "a lease is renewed each 10s", Reasons: []string{KubeletDisconnected}},
}
