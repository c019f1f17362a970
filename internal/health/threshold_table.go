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
		if slices.Contains(t.Of, id) {
			out = append(out, Threshold{What: t.What, Value: valueText(t.Value), Source: t.Source})
		}
	}
	return out
}

// ids are the reasons whose rules compare with a number.
type ids []string

// slowByCPU explain slow lists, hanging state that a list hangs, unserved that connections wait.
var (
	slowByCPU = ids{RuntimeThrottled, RuntimeStarved}
	hanging   = ids{RuntimeUnresponsive, RuntimeListStall}
	unserved  = ids{AcceptFDExhausted, AcceptStalled}
)

// thresholds is the one table of them. The pages have its rows (make generate).
var thresholds = []struct {
	What   string
	Value  any
	Source string
	Of     ids
}{
	// Calls.
	{What: "a list unanswered for", Value: facts.HangAfter, Of: hanging},
	{What: "plus, for each MiB of its last answer", Value: hangPerMiB, Of: hanging},
	{What: "relists, three times whose median it exceeds", Value: recentLists, Of: hanging},
	{What: "at most", Value: hangSurely, Of: hanging},
	{What: "while its CPU quota throttles it", Value: quotaMeasured, Of: hanging},
	{What: "Version unanswered for", Value: hangProbeAfter, Of: ids{RuntimeUnresponsive}},
	{What: "before a container is blamed", Value: containerStalledAfter, Of: ids{RuntimeListStall}},
	{What: "Status unanswered for", Value: statusHangAfter, Of: ids{RuntimeNotReady}},
	{What: "Version unanswered for", Value: versionReasonAfter, Of: ids{NodeStatusStalled}},
	{What: "a pod's status unanswered for", Value: inspectHangAfter, Of: ids{PodInspectionStall}},
	{What: "or failures in a row", Value: failingInspections, Of: ids{PodInspectionStall}},
	{What: "a call unanswered for", Value: slowCall, Of: ids{RuntimeFrozen}},
	{What: "an answer of at least", Value: amount(messageLimit), Source: "k8s.io/cri-client, maxMsgSize", Of: ids{ListResponseTooLarge}},
	{What: "both lists take", Value: SlowListThreshold, Of: ids{RelistSlow}},
	{What: "ends below this share of it", Value: share(slowStill), Of: ids{RelistSlow}},
	{What: "the inspections take", Value: SlowRelistThreshold, Source: "KubeletPlegDurationHigh of kubernetes-mixin", Of: ids{RelistSlow}},
	{What: "or pods inspected in one relist", Value: burstPods, Of: ids{RelistSlow}},
	{What: "and that relist takes", Value: burstTakes, Of: ids{RelistSlow}},
	{What: "beyond --rpc-timeout or --relist-period", Value: loopLate, Of: ids{RelistLoopStalled}},
	{What: "nothing explains it for", Value: unknownAfter, Of: ids{Unknown}},
	{What: "until Status has had", Value: kubelet.RuntimeDownAfter, Source: "kubelet.go, maxWaitForContainerRuntime", Of: ids{Starting}},
	{What: "a node's first network may take", Value: networkStart, Of: ids{NetworkNotReady}},

	// Connections.
	{What: "a connection pending for", Value: queueWaits, Of: ids{AcceptStalled}},
	{What: "where the queue is not readable", Value: queueUnseenWaits, Of: ids{AcceptStalled}},
	{What: "not this soon after a stop", Value: acceptsAfterStop, Of: ids{AcceptStalled}},
	{What: "not while the queue fell within", Value: queueFalls, Of: unserved},
	{What: "no free descriptor within", Value: acceptsAgain, Source: "grpc-go's Serve retries within 1s", Of: ids{AcceptFDExhausted}},
	{What: "something else at the path for", Value: takeoverGracePeriod, Of: ids{RuntimeSocketUnlinked}},
	{What: "failures in a row", Value: streamFailures, Source: "eventedPlegMaxStreamRetries", Of: ids{EventStreamBroken}},

	// The runtime's process.
	{What: "in D without having run for, while lists are slow", Value: blockedAfter, Of: ids{RuntimeStorageStall}},
	{What: "waits for the lock for, while lists are slow", Value: lockedAfter, Of: ids{RuntimeStorageLocked}},
	{What: "waits for, while lists are answered", Value: whileServing, Of: ids{RuntimeStorageStall, RuntimeStorageLocked, RuntimeMemoryLimited}},
	{What: "has not run, or in D mostly, for", Value: whileServing, Of: ids{RuntimeThreadStuck}},
	{What: "io.pressure some avg10", Value: percent(ioPressure), Of: ids{RuntimeStorageStall}},
	{What: "or number of stops", Value: stopsMany, Of: ids{RuntimeFrozen}},
	{What: "within", Value: stopsWithin, Of: ids{RuntimeFrozen}},
	{What: "ends after the last stop", Value: stopsOver, Of: ids{RuntimeFrozen}},
	{What: "starts within 5m", Value: restartLoops[0].starts, Of: ids{RuntimeRestarting}},
	{What: "or starts within 30m", Value: restartLoops[1].starts, Of: ids{RuntimeRestarting}},
	{What: "ends at the earliest after", Value: restartsOver, Of: ids{RuntimeRestarting}},
	{What: "younger than", Value: youngFor, Of: ids{RuntimeStarting}},
	{What: "younger than, where it listens", Value: startsFor, Of: ids{RuntimeStarting}},
	{What: "descriptors, of RLIMIT_NOFILE", Value: share(limitNear), Of: ids{FDsRunningOut}},
	{What: "ends below", Value: share(limitCalm), Of: ids{FDsRunningOut}},

	// CPU, memory and I/O of its cgroup.
	{What: "time throttled", Value: share(throttledShare), Of: ids{RuntimeThrottled}},
	{What: "continues at this share of time or periods", Value: share(throttledStill), Of: ids{RuntimeThrottled}},
	{What: "time waiting for a CPU", Value: share(starvedDelay), Of: ids{RuntimeStarved}},
	{What: "waiting, of the time in which it could run", Value: share(starvedShare), Of: ids{RuntimeStarved}},
	{What: "mean wait", Value: starvedWait, Of: ids{RuntimeStarved}},
	{What: "its quota took no time for", Value: throttledLately, Of: ids{RuntimeStarved}},
	{What: "one of the last three relists' lists takes", Value: slowCall, Of: slices.Concat(slowByCPU, ids{RuntimeFrozen})},
	{What: "ends after quick relists in a row", Value: throttledLists, Of: slowByCPU},
	{What: "usage of memory.high, memory.max or memory.limit_in_bytes", Value: share(memoryNear), Of: ids{RuntimeMemoryLimited}},
	{What: "memory.pressure full avg10", Value: percent(memoryPressure), Of: ids{RuntimeMemoryLimited}},
	{What: "or, without that file, pages refaulted a second", Value: refaultsMany, Of: ids{RuntimeMemoryLimited}},
	{What: "critical while one of the last ten relists' lists took", Value: SlowListThreshold, Of: slices.Concat(slowByCPU, ids{KernelLimitReached})},

	// The node.
	{What: "tasks of pids.max, mounts of fs.mount-max", Value: share(pidsFull), Of: ids{KernelLimitReached}},
	{What: "threads of pid_max or threads-max, files of file-max", Value: share(nodeFull), Of: ids{KernelLimitReached}},
	{What: "threads, of those at which Go ends a program", Value: share(threadsNear), Source: "runtime/debug.SetMaxThreads: 10000", Of: ids{KernelLimitReached}},
	{What: "CPU some avg10", Value: percent(cpuSome), Of: ids{NodePressure}},
	{What: "while CPUs are idle for at most", Value: share(idleMost), Of: ids{NodePressure}},
	{What: "or the runtime's time waiting for a CPU", Value: share(waitMost), Of: ids{NodePressure}},
	{What: "memory full avg10", Value: percent(memFull), Of: ids{NodePressure}},
	{What: "I/O full avg10", Value: percent(ioFull), Of: ids{NodePressure}},
	{What: "ends below this share of each", Value: share(calmShare), Of: ids{NodePressure}},
	{What: "the lists of two relists take", Value: slowCall, Of: ids{NodePressure}},
	{What: "containers", Value: tooManyContainers, Of: ids{TooManyContainers}},
	{What: "ends below this share of it", Value: share(tooManyStill), Of: ids{TooManyContainers}},
	{What: "or a list, of the kubelet's 16 MiB", Value: share(limitNear), Source: "k8s.io/cri-client, maxMsgSize", Of: ids{TooManyContainers}},
	{What: "a list ends below", Value: share(limitCalm), Of: ids{TooManyContainers}},

	// File systems.
	{What: "free space for root below", Value: amount(facts.FullBytes), Of: ids{RuntimeStorageFull}},
	{What: "or below this share, if smaller", Value: share(1. / facts.FullShare), Of: ids{RuntimeStorageFull}},
	{What: "but at least, bytes", Value: amount(facts.MinFullBytes), Of: ids{RuntimeStorageFull}},
	{What: "free inodes below", Value: facts.FullInodes, Of: ids{RuntimeStorageFull}},
	{What: "or below this share, if smaller", Value: share(1. / facts.FullShare), Of: ids{RuntimeStorageFull}},
	{What: "but at least, inodes", Value: facts.MinFullInodes, Of: ids{RuntimeStorageFull}},
	{What: "ends above a multiple of", Value: facts.StorageStill, Of: ids{RuntimeStorageFull}},

	// Pods and the kubelet.
	{What: "stopped or frozen for", Value: stoppedShim, Of: ids{ShimStuck}},
	{What: "blocked in the kernel for", Value: blockedShim, Of: ids{ShimStuck}},
	{What: "runs for", Value: oldHelper, Of: ids{RuntimeHelperStuck}},
	{What: "failures in a row", Value: startErrors, Of: ids{PodStartsFailing}},
	{What: "one of which took", Value: startSlow, Of: ids{PodStartsFailing}},
	{What: "or pods that wait for a sandbox", Value: startPods, Of: ids{PodStartsFailing}},
	{What: "ends after the last failure", Value: startRetried, Source: "pod_workers.go, backOffPeriod", Of: ids{PodStartsFailing}},
	{What: "healthz fails for, and the runtime is good for", Value: kubeletFails, Of: ids{KubeletStalled}},
	{What: "or age of its own last seen", Value: kubeletOld, Source: "above the 300s of KEP-3386", Of: ids{KubeletStalled}},
	{What: "a pause of", Value: kubelet.PauseNoticed, Source: "node_lifecycle_controller.go: nodeMonitorGrace less a lease period", Of: ids{NodePaused}},
	{What: "refused for", Value: kubeletGone, Of: ids{KubeletDown}},
	{What: "no request answered for", Value: apiLostAfter, Of: ids{KubeletDisconnected}},
	{What: "or last answered before", Value: apiSilentAfter, Source: "a lease is renewed each 10s", Of: ids{KubeletDisconnected}},
}
