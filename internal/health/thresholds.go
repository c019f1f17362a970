package health

import (
	"time"

	"github.com/plegd/plegd/internal/kubelet"
)

// The thresholds of the reasons. A comment states what the number is compared with and, after "Source", the kubelet,
// runtime or kernel file that has it. A number without a source was chosen; the faults of docs/results/faults.md and
// the quiet cases of testdata/scenarios/None hold with it.

// Calls. A fault that stops a relist is named within 3 s: a period, facts.HangAfter, and a judgement every 250 ms.
const (
	// slowCall is the duration from which a list is slow.
	slowCall = 300 * time.Millisecond
	// SlowListThreshold is what both lists may take: RelistSlow needs two relists above it, and ends at slowStill. From
	// it on, what makes lists slow is critical.
	SlowListThreshold = 2 * time.Second
	slowStill         = 0.5
	// SlowRelistThreshold is what the inspections of a relist may take call after call. Source: the alert
	// KubeletPlegDurationHigh of kubernetes-mixin, 10 s.
	SlowRelistThreshold = 10 * time.Second
	// hangSurely is the age from which a list hangs, even if it was usual.
	hangSurely = 20 * time.Second
	// suspectAfter is the age from which a call is suspected to hang, and its chain is followed.
	suspectAfter = 500 * time.Millisecond
	// hangPerMiB is added to the limit for each MiB of a list's last answer: a large one takes long to make.
	hangPerMiB = 100 * time.Millisecond
	// recentLists is the number of relists whose lists show what is usual.
	recentLists = 3
	// hangProbeAfter is for how long Version must be unanswered while a list hangs.
	hangProbeAfter = 900 * time.Millisecond
	// versionReasonAfter is for how long Version must be unanswered while lists are answered.
	versionReasonAfter = 5 * time.Second
	// statusHangAfter is the same for Status.
	statusHangAfter = kubelet.StatusHangAfter
	// answerAfterStatus is how long after the start of a Status that hangs another call must be answered.
	answerAfterStatus = time.Second
	// inspectHangAfter is for how long a pod's inspection must be unanswered, failingInspections how often in a row it
	// must fail.
	inspectHangAfter   = 3 * time.Second
	failingInspections = 2
	// stuckInspectionAfter is the age from which the call of an inspection, or a Status, is a symptom.
	stuckInspectionAfter = time.Second
	// unknownAfter is for how long something may be wrong without a name.
	unknownAfter = 3 * time.Second
	// burstPods pods that changed at once make a relist slow once their inspections take burstTakes.
	burstPods  = 50
	burstTakes = 5 * time.Second
	// loopLate is how much longer than it may take a relist or a period must take for plegd's loop to count as stalled.
	loopLate = 10 * time.Second
)

// Connections.
const (
	// hopFailsFor is how long a hop must refuse connections, or leave them unanswered, while the runtime's calls do
	// not fail. Source: dockerd starts its own containerd again within that time (libcontainerd/supervisor).
	hopFailsFor = 3 * time.Second
	// takeoverGracePeriod delays the report of another listener until its owner is usually known, listenerFound is
	// how soon it is known on a busy node.
	takeoverGracePeriod = 2 * time.Second
	listenerFound       = 3 * time.Second
	// queueWaits is how long the accept queue must hold a connection; queueUnseenWaits the same for a fresh connection
	// while the queue is not seen: two probes and more have had no answer by then.
	queueWaits       = 2 * time.Second
	queueUnseenWaits = 4 * time.Second
	// queueFalls is how long ago a queue must have fallen to count as draining.
	queueFalls = time.Second
	// acceptsAgain is the time after the runtime last used up its descriptors within which it accepts again. Source:
	// grpc-go's Serve retries after up to one second; the sample is up to one second old.
	acceptsAgain = 3 * time.Second
	// acceptsAfterStop is the grace period after a stop for the runtime to accept and for the queue to be read.
	acceptsAfterStop = time.Second
	// messageLimit is the largest answer in bytes that the kubelet accepts. Source: k8s.io/cri-client, maxMsgSize.
	messageLimit = 16 << 20
	// streamFailures is how often the kubelet tries the event stream. Source: eventedPlegMaxStreamRetries.
	streamFailures = 5
)

// The runtime's process.
const (
	// blockedAfter is how long a thread must be in D without having run, and lockedAfter how long a file lock must be
	// waited for, while relists are slow; whileServing is the same for both while lists are answered.
	blockedAfter = 2 * time.Second
	lockedAfter  = time.Second
	whileServing = 10 * time.Second
	// frozenUnseen is how long after the cgroup was last seen frozen a sample of the threads may still be of that time.
	frozenUnseen = 1500 * time.Millisecond
	// youngFor is how long after its start a runtime that does not serve yet counts as starting: recovering hundreds of
	// pods takes minutes at worst. startsFor is the same for one that accepts and answers nothing.
	youngFor  = 5 * time.Minute
	startsFor = 30 * time.Second
	// restartsOver is for how long at least a restart loop is named after its last start. maxCount bounds a counter of
	// the kernel that is printed.
	restartsOver = time.Minute
	maxCount     = 1 << 30
	// stopsMany stops within stopsWithin are one fault; it ends stopsOver after the last of them.
	stopsMany   = 2
	stopsWithin = 10 * time.Second
	stopsOver   = 1250 * time.Millisecond
	// limitNear is the share of a limit of descriptors or bytes from which it counts as near, limitCalm the share below
	// which that ends.
	limitNear = 0.8
	limitCalm = 0.75
)

// CPU, memory and I/O of the runtime's cgroup.
const (
	// throttledShare is the time a second that a quota takes, throttledStill of time or periods afterwards.
	throttledShare = 0.3
	throttledStill = 0.1
	// throttledLists is how many lists must be quick until a quota that still throttles is not the cause.
	throttledLists = 10
	// quotaMeasured is how long after the begin of a hang it is known what the quota takes.
	quotaMeasured = 2500 * time.Millisecond
	// throttledLately is how long after its quota took time the runtime's waits for a CPU are its quota's.
	throttledLately = 3 * time.Second
	// throttledUnseen is how much older than the process's evidence the cgroup's may be to speak of the same wait.
	throttledUnseen = 2 * time.Second
	// starvedDelay is the seconds a second that the runtime must wait for a CPU, starvedShare that time's share of all
	// that it wanted, starvedWait how long each wait must take: on a busy node they are many and brief.
	starvedDelay = 0.5
	starvedShare = 0.8
	starvedWait  = 100 * time.Millisecond
	// timesWithoutPause is how long after a pause the waits for a CPU are those of the time since.
	timesWithoutPause = 5 * time.Second
	// memoryNear is the share of a memory limit from which it counts as met.
	memoryNear = 0.95
	// memoryPressure is the share of time, in per cent, that all of the cgroup's tasks must wait for memory,
	// refaultsMany how many pages a second must be read again where the kernel has no pressure of a cgroup.
	memoryPressure = 20
	refaultsMany   = 50
	// ioPressure is the per cent of time in which the cgroup waits for I/O where no wait channel can be read.
	ioPressure = 20
)

// The node.
const (
	// pidsFull is the share of pids.max and fs.mount-max, nodeFull of the kernel's tables.
	pidsFull = 0.98
	nodeFull = 0.95
	// goThreads is the number of threads at which Go ends a program. Source: runtime/debug.SetMaxThreads. threadsNear is
	// the share that is near: each hung file operation takes a thread.
	goThreads   = 10000
	threadsNear = 0.8
	// Pressure in per cent over 10 s; it ends below calmShare of its number.
	cpuSome   = 80
	memFull   = 20
	ioFull    = 40
	calmShare = 0.75
	// idleMost is the share of the CPUs' time: a node with more idle time is not short of CPU; idleStill the same while
	// NodePressure is active. From idleEnough on, no process waits for the node's CPUs.
	idleMost   = 0.2
	idleStill  = 0.3
	idleEnough = 0.5
	// waitMost is the seconds a second for which the runtime waits for a CPU, more than it runs, on a busy node.
	waitMost = 0.2
	// tooManyContainers is far above the 110 pods of a node (kubelet, maxPods); it ends below the share tooManyStill.
	tooManyContainers = 5000
	tooManyStill      = 0.9
)

// Pods and the kubelet.
const (
	// stoppedShim is for how long a shim must be stopped or frozen, blockedShim for how long blocked in the kernel.
	stoppedShim = 300 * time.Millisecond
	blockedShim = 10 * time.Second
	// oldHelper is for how long a helper must run; youngHelper is how long it may take on a node whose CPUs are short.
	oldHelper   = 30 * time.Second
	youngHelper = 10 * time.Second
	// startErrors calls in a row must have failed, one of them after startSlow: a fault of one pod fails at once.
	startErrors = 3
	startSlow   = 10 * time.Second
	// startPods is how many pods must wait for a sandbox where all fail at once.
	startPods = 2
	// startRetried is how long a failure counts. Source: the kubelet tries each pod again after 10 to 15 s
	// (pod_workers.go, backOffPeriod).
	startRetried = time.Minute
	// chainValid is how long a chain counts after its last look, findingValid the same for a finding of the ledger: its
	// interval, and one pass.
	chainValid   = 3 * time.Second
	findingValid = 15 * time.Second
	// containerStalledAfter is how long a list must be unanswered until a container whose lock's holder is not seen
	// counts as the cause: a runtime without a CPU answers some calls late.
	containerStalledAfter = 5 * time.Second
	// kubeletFails is how long the kubelet must have failed while the runtime is good, kubeletGone how long nobody listened.
	kubeletFails = 10 * time.Second
	kubeletGone  = kubelet.GoneAfter
	// kubeletOld is the age of the kubelet's own last seen while the runtime answers. Source: above the 300 s between
	// two relists of a kubelet that uses events (KEP-3386, 1.26 to 1.36).
	kubeletOld = 330 * time.Second
	// apiLostAfter is how long the kubelet's requests must have had no answer: a kubelet whose API server restarts
	// connects again within it.
	apiLostAfter = 10 * time.Second
	// apiSilentAfter is the same after the last answer; a renewal of the lease is due every 10 s.
	apiSilentAfter = 15 * time.Second
	// apiSettle is the minimum age of a loss: after a pause of the node a connection has bytes to acknowledge for a
	// moment.
	apiSettle = 2 * time.Second
	// networkStart is how long a new node may take until its network plugin is ready.
	networkStart = 10 * time.Minute
)

// Rank.
const (
	// holdFor is how long the primary reason stays after it last matched. One that flickers stays longer by the time
	// for which its evidence was missing before, up to maxHold.
	holdFor = 3 * time.Second
	maxHold = 10 * time.Second
	// minGap is the shortest gap in a reason's evidence that counts as missing.
	minGap = time.Second
	// settleFor is how long another reason of the same severity must be active to become the primary one.
	settleFor = 2 * time.Second
)
