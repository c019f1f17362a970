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
	What   string `json:"what"` // the compared quantity, and the comparison
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
		if strings.HasSuffix(text, "m0s") {
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
	What    string
	Value   any
	Source  string
	Reasons ids
}{
	// Calls.
	{What: "a list unanswered for", Value: facts.HangAfter, Reasons: hanging},
	{What: "plus, for each MiB of its last answer", Value: hangPerMiB, Reasons: hanging},
	{What: "relists, three times whose median it exceeds", Value: recentLists, Reasons: hanging},
	{What: "at most", Value: hangSurely, Reasons: hanging},
	{What: "while its CPU quota throttles it", Value: quotaMeasured, Reasons: hanging},
	{What: "Version unanswered for", Value: hangProbeAfter, Reasons: ids{RuntimeUnresponsive}},
	{What: "before a container is blamed", Value: containerStalledAfter, Reasons: ids{RuntimeListStall}},
	{What: "Status unanswered for", Value: statusHangAfter, Reasons: ids{RuntimeNotReady}},
	{What: "Version unanswered for", Value: versionReasonAfter, Reasons: ids{NodeStatusStalled}},
	{What: "a pod's status unanswered for", Value: inspectHangAfter, Reasons: ids{PodInspectionStall}},
	{What: "or failures in a row", Value: failingInspections, Reasons: ids{PodInspectionStall}},
	{What: "a call unanswered for", Value: slowCall, Reasons: ids{RuntimeFrozen}},
	{What: "an answer of at least", Value: amount(messageLimit), Source: "k8s.io/cri-client, maxMsgSize", Reasons: ids{ListResponseTooLarge}},
	{What: "both lists take", Value: SlowListThreshold, Reasons: ids{RelistSlow}},
	{What: "ends below this share of it", Value: share(slowStill), Reasons: ids{RelistSlow}},
	{What: "the inspections take", Value: SlowRelistThreshold, Source: "KubeletPlegDurationHigh of kubernetes-mixin", Reasons: ids{RelistSlow}},
	{What: "or pods inspected in one relist", Value: burstPods, Reasons: ids{RelistSlow}},
	{What: "and that relist takes", Value: burstTakes, Reasons: ids{RelistSlow}},
	{What: "beyond --rpc-timeout or --relist-period", Value: loopLate, Reasons: ids{RelistLoopStalled}},
	{What: "nothing explains it for", Value: unknownAfter, Reasons: ids{Unknown}},
	{What: "until Status has had", Value: kubelet.RuntimeDownAfter, Source: "kubelet.go, maxWaitForContainerRuntime", Reasons: ids{Starting}},
	{What: "a node's first network may take", Value: networkStart, Reasons: ids{NetworkNotReady}},

	// Connections.
	{What: "a connection pending for", Value: queueWaits, Reasons: ids{AcceptStalled}},
	{What: "where the queue is not readable", Value: queueUnseenWaits, Reasons: ids{AcceptStalled}},
	{What: "not this soon after a stop", Value: acceptsAfterStop, Reasons: ids{AcceptStalled}},
	{What: "not while the queue fell within", Value: queueFalls, Reasons: unserved},
	{What: "no free descriptor within", Value: acceptsAgain, Source: "grpc-go's Serve retries within 1s", Reasons: ids{AcceptFDExhausted}},
	{What: "something else at the path for", Value: takeoverGracePeriod, Reasons: ids{RuntimeSocketUnlinked}},
	{What: "failures in a row", Value: streamFailures, Source: "eventedPlegMaxStreamRetries", Reasons: ids{EventStreamBroken}},

	// The runtime's process.
	{What: "in D without having run for, while lists are slow", Value: blockedAfter, Reasons: ids{RuntimeStorageStall}},
	{What: "waits for the lock for, while lists are slow", Value: lockedAfter, Reasons: ids{RuntimeStorageLocked}},
	{What: "waits for, while lists are answered", Value: whileServing, Reasons: ids{RuntimeStorageStall, RuntimeStorageLocked, RuntimeMemoryLimited}},
	{What: "has not run, or in D mostly, for", Value: whileServing, Reasons: ids{RuntimeThreadStuck}},
	{What: "io.pressure some avg10", Value: percent(ioPressure), Reasons: ids{RuntimeStorageStall}},
	{What: "or number of stops", Value: stopsMany, Reasons: ids{RuntimeFrozen}},
	{What: "within", Value: stopsWithin, Reasons: ids{RuntimeFrozen}},
	{What: "ends after the last stop", Value: stopsOver, Reasons: ids{RuntimeFrozen}},
	{What: "starts within 5m", Value: restartLoops[0].starts, Reasons: ids{RuntimeRestarting}},
	{What: "or starts within 30m", Value: restartLoops[1].starts, Reasons: ids{RuntimeRestarting}},
	{What: "ends at the earliest after", Value: restartsOver, Reasons: ids{RuntimeRestarting}},
	{What: "younger than", Value: youngFor, Reasons: ids{RuntimeStarting}},
	{What: "younger than, where it listens", Value: startsFor, Reasons: ids{RuntimeStarting}},
	{What: "descriptors, of RLIMIT_NOFILE", Value: share(limitNear), Reasons: ids{FDsRunningOut}},
	{What: "ends below", Value: share(limitCalm), Reasons: ids{FDsRunningOut}},

	// CPU, memory and I/O of its cgroup.
	{What: "time throttled", Value: share(throttledShare), Reasons: ids{RuntimeThrottled}},
	{What: "continues at this share of time or periods", Value: share(throttledStill), Reasons: ids{RuntimeThrottled}},
	{What: "while lists are quick, time and periods, for", Value: throttledLong, Reasons: ids{RuntimeThrottled}},
	{What: "time waiting for a CPU", Value: share(starvedDelay), Reasons: ids{RuntimeStarved}},
	{What: "waiting, of the time in which it could run", Value: share(starvedShare), Reasons: ids{RuntimeStarved}},
	{What: "mean wait", Value: starvedWait, Reasons: ids{RuntimeStarved}},
	{What: "its quota took no time for", Value: throttledLately, Reasons: ids{RuntimeStarved}},
	{What: "one of the last three relists' lists takes", Value: slowCall, Reasons: slices.Concat(slowByCPU, ids{RuntimeFrozen})},
	{What: "ends after quick relists in a row", Value: throttledLists, Reasons: slowByCPU},
	{What: "usage of memory.high, memory.max or memory.limit_in_bytes", Value: share(memoryNear), Reasons: ids{RuntimeMemoryLimited}},
	{What: "memory.pressure full avg10", Value: percent(memoryPressure), Reasons: ids{RuntimeMemoryLimited}},
	{What: "or, without that file, pages refaulted a second", Value: refaultsMany, Reasons: ids{RuntimeMemoryLimited}},
	{What: "critical while one of the last ten relists' lists took", Value: SlowListThreshold, Reasons: slices.Concat(slowByCPU, ids{KernelLimitReached})},

	// The node.
	{What: "tasks of pids.max, mounts of fs.mount-max", Value: share(pidsFull), Reasons: ids{KernelLimitReached}},
	{What: "threads of pid_max or threads-max, files of file-max", Value: share(nodeFull), Reasons: ids{KernelLimitReached}},
	{What: "threads, of those at which Go ends a program", Value: share(threadsNear), Source: "runtime/debug.SetMaxThreads: 10000", Reasons: ids{KernelLimitReached}},
	{What: "CPU some avg10", Value: percent(cpuSome), Reasons: ids{NodePressure}},
	{What: "while CPUs are idle for at most", Value: share(idleMost), Reasons: ids{NodePressure}},
	{What: "or the runtime's time waiting for a CPU", Value: share(waitMost), Reasons: ids{NodePressure}},
	{What: "memory full avg10", Value: percent(memFull), Reasons: ids{NodePressure}},
	{What: "I/O full avg10", Value: percent(ioFull), Reasons: ids{NodePressure}},
	{What: "ends below this share of each", Value: share(calmShare), Reasons: ids{NodePressure}},
	{What: "the lists of two relists take", Value: slowCall, Reasons: ids{NodePressure}},
	{What: "in proportion to their size above", Value: amount(usualLists), Reasons: ids{NodePressure}},
	{What: "containers", Value: tooManyContainers, Reasons: ids{TooManyContainers}},
	{What: "ends below this share of it", Value: share(tooManyStill), Reasons: ids{TooManyContainers}},
	{What: "or a list, of the kubelet's 16 MiB", Value: share(limitNear), Source: "k8s.io/cri-client, maxMsgSize", Reasons: ids{TooManyContainers}},
	{What: "a list ends below", Value: share(limitCalm), Reasons: ids{TooManyContainers}},

	// File systems.
	{What: "free space for root below", Value: amount(facts.FullBytes), Reasons: ids{RuntimeStorageFull}},
	{What: "or below this share, if smaller", Value: share(1. / facts.FullShare), Reasons: ids{RuntimeStorageFull}},
	{What: "but at least, bytes", Value: amount(facts.MinFullBytes), Reasons: ids{RuntimeStorageFull}},
	{What: "free inodes below", Value: facts.FullInodes, Reasons: ids{RuntimeStorageFull}},
	{What: "or below this share, if smaller", Value: share(1. / facts.FullShare), Reasons: ids{RuntimeStorageFull}},
	{What: "but at least, inodes", Value: facts.MinFullInodes, Reasons: ids{RuntimeStorageFull}},
	{What: "ends above a multiple of", Value: facts.StorageStill, Reasons: ids{RuntimeStorageFull}},

	// Pods and the kubelet.
	{What: "stopped or frozen for", Value: stoppedShim, Reasons: ids{ShimStuck}},
	{What: "blocked in the kernel for", Value: blockedShim, Reasons: ids{ShimStuck}},
	{What: "runs for", Value: oldHelper, Reasons: ids{RuntimeHelperStuck}},
	{What: "failures in a row", Value: startErrors, Reasons: ids{PodStartsFailing}},
	{What: "one of which took", Value: startSlow, Reasons: ids{PodStartsFailing}},
	{What: "or pods that wait for a sandbox", Value: startPods, Reasons: ids{PodStartsFailing}},
	{What: "or the sandbox image is gone for", Value: imageGone, Reasons: ids{PodStartsFailing}},
	{What: "ends after the last failure", Value: startRetried, Source: "pod_workers.go, backOffPeriod", Reasons: ids{PodStartsFailing}},
	{What: "healthz fails for, and the runtime is good for", Value: kubeletFails, Reasons: ids{KubeletStalled}},
	{What: "or age of its own last seen", Value: kubeletOld, Source: "above the 300s of KEP-3386", Reasons: ids{KubeletStalled}},
	{What: "a pause of", Value: kubelet.PauseNoticed, Source: "node_lifecycle_controller.go: nodeMonitorGrace less a lease period", Reasons: ids{NodePaused}},
	{What: "refused for", Value: kubeletGone, Reasons: ids{KubeletDown}},
	{What: "no request answered for", Value: apiLostAfter, Reasons: ids{KubeletDisconnected}},
	{What: "or last answered before", Value: apiSilentAfter, Source: "a lease is renewed each 10s", Reasons: ids{KubeletDisconnected}},
}
