package health

import (
	"time"

	"github.com/plegd/plegd/internal/kubelet"
)

// The numbers that rules compare with. The table in threshold_table.go states what a person sees of them; a comment here
// is about what the table leaves out.

// Calls. A fault that stops a relist is named within 3 s: a period, facts.HangAfter, and a judgement every 250 ms.
const (
	slowCall = 300 * time.Millisecond
	// usualLists are the bytes of both lists on a node of 250 pods. Larger ones may take longer in proportion.
	usualLists = 1 << 20
	// SlowListThreshold is what both lists may take. From it on, what makes lists slow is critical.
	SlowListThreshold = 2 * time.Second
	slowStill         = 0.5
	// SlowRelistThreshold is what the inspections of a relist may take call after call.
	SlowRelistThreshold = 10 * time.Second
	// hangSurely is the age from which a list hangs, even if it was usual.
	hangSurely = 20 * time.Second
	// suspectAfter is the age from which a call is suspected to hang, and its chain is followed.
	suspectAfter = 500 * time.Millisecond
	// hangPerMiB is added for each MiB of a list's last answer: a large one takes long to make.
	hangPerMiB         = 100 * time.Millisecond
	recentLists        = 3
	hangProbeAfter     = 900 * time.Millisecond
	versionReasonAfter = 5 * time.Second
	statusHangAfter    = kubelet.StatusHangAfter
	// answerAfterStatus is how long after the start of a Status that hangs another call must be answered.
	answerAfterStatus  = time.Second
	inspectHangAfter   = 3 * time.Second
	failingInspections = 2
	// stuckInspectionAfter is the age from which the call of an inspection, or a Status, is a symptom.
	stuckInspectionAfter = time.Second
	unknownAfter         = 3 * time.Second
	burstPods            = 50
	burstTakes           = 5 * time.Second
	loopLate             = 10 * time.Second
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
	// queueUnseenWaits is the time of two probes and more.
	queueWaits       = 2 * time.Second
	queueUnseenWaits = 4 * time.Second
	queueFalls       = time.Second
	// acceptsAgain includes the age of the sample, up to one second.
	acceptsAgain     = 3 * time.Second
	acceptsAfterStop = time.Second
	messageLimit     = 16 << 20
	streamFailures   = 5
)

// The runtime's process.
const (
	blockedAfter = 2 * time.Second
	lockedAfter  = time.Second
	whileServing = 10 * time.Second
	// frozenUnseen is how long after the cgroup was last seen frozen a sample of the threads may still be of that time.
	frozenUnseen = 1500 * time.Millisecond
	// youngFor covers the recovery of hundreds of pods, which takes minutes at worst.
	youngFor     = 5 * time.Minute
	startsFor    = 30 * time.Second
	restartsOver = time.Minute
	// killSettles is how long after a kill for memory it is known whether the runtime itself was killed.
	killSettles = 2 * time.Second
	// maxCount bounds a counter of the kernel that is printed.
	maxCount    = 1 << 30
	stopsMany   = 2
	stopsWithin = 10 * time.Second
	stopsOver   = 1250 * time.Millisecond
	limitNear   = 0.8
	limitCalm   = 0.75
)

// CPU, memory and I/O of the runtime's cgroup.
const (
	throttledShare = 0.3
	throttledStill = 0.1
	// throttledLong is the time from which a quota counts while lists are quick.
	throttledLong = 30 * time.Second
	// throttledLists is how many lists must be quick until a quota that still throttles is not the cause.
	throttledLists = 10
	// quotaMeasured is how long after the begin of a hang it is known what the quota takes.
	quotaMeasured   = 2500 * time.Millisecond
	throttledLately = 3 * time.Second
	// throttledUnseen is how much older than the process's evidence the cgroup's may be to speak of the same wait.
	throttledUnseen = 2 * time.Second
	// On a busy node waits for a CPU are many and brief: each must take starvedWait.
	starvedDelay = 0.5
	starvedShare = 0.8
	starvedWait  = 100 * time.Millisecond
	// timesWithoutPause is how long after a pause the waits for a CPU are those of the time since.
	timesWithoutPause = 5 * time.Second
	memoryNear        = 0.95
	memoryPressure    = 20
	refaultsMany      = 50
	ioPressure        = 20
)

// The node.
const (
	pidsFull = 0.98
	nodeFull = 0.95
	// Each hung file operation takes a thread.
	goThreads   = 10000
	threadsNear = 0.8
	cpuSome     = 80
	memFull     = 20
	ioFull      = 40
	calmShare   = 0.75
	idleMost    = 0.2
	// idleStill is idleMost while NodePressure is active. From idleEnough on, no process waits for the node's CPUs.
	idleStill  = 0.3
	idleEnough = 0.5
	waitMost   = 0.2
	// tooManyContainers is far above the 110 pods of a node (kubelet, maxPods).
	tooManyContainers = 5000
	tooManyStill      = 0.9
)

// Pods and the kubelet.
const (
	stoppedShim = 300 * time.Millisecond
	blockedShim = 10 * time.Second
	oldHelper   = 30 * time.Second
	// youngHelper is how long a helper may take on a node whose CPUs are short.
	youngHelper  = 10 * time.Second
	startErrors  = 3
	startSlow    = 10 * time.Second // a fault of one pod fails at once
	startPods    = 2
	startRetried = time.Minute
	// imageGone is at least two samples after the first in the steady state: an image may be replaced.
	imageGone = 2 * time.Minute
	// chainValid is how long a chain counts after its last look, findingValid the same for a finding of the ledger: its
	// interval, and one pass.
	chainValid   = 3 * time.Second
	findingValid = 15 * time.Second
	// containerStalledAfter allows for a runtime without a CPU, which answers some calls late.
	containerStalledAfter = 5 * time.Second
	kubeletFails          = 10 * time.Second
	kubeletGone           = kubelet.GoneAfter
	kubeletOld            = 330 * time.Second
	kubeletStarts         = 30 * time.Second // until it has asked its API server for all that it needs to start
	// A kubelet whose API server restarts connects again within apiLostAfter.
	apiLostAfter   = 10 * time.Second
	apiSilentAfter = 15 * time.Second
	// apiSettle is the minimum age of a loss: after a pause of the node a connection has bytes to acknowledge for a
	// moment.
	apiSettle    = 2 * time.Second
	networkStart = 10 * time.Minute // its network plugin is a pod that is pulled first
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
