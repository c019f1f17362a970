//go:build e2e

package kubelet

import (
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/plegd/plegd/test/lab"
)

// scenario is one fault, made on a node of its own.
type scenario struct {
	name string
	// real is true for a containerd, false for the simulated runtime.
	real bool
	// minor is true for those that are repeated on an older kubelet.
	minor bool
	// requestTimeout is the kubelet's runtimeRequestTimeout; 0: its default, 2 min.
	requestTimeout time.Duration
	// evented switches the kubelet's EventedPLEG on, which lengthens its relist period up to 1.36.
	evented bool
	// unnamed leaves it to plegd to find the runtime's socket.
	unnamed bool
	// healthzOff turns the kubelet's healthz off.
	healthzOff bool
	// metrics gives plegd the kubelet's metrics on its authenticated port.
	metrics bool
	// loopSilent to reasonWithin are as in record.Recording.
	loopSilent bool
	statusRule bool
	wantReady  bool
	predicted  time.Duration
	deviation  string
	wantReason string
	unknown    time.Duration
	// reasonWithin and goneWithin are 15 s and 5 s where they are 0.
	reasonWithin, goneWithin time.Duration
	// length is about how long it takes: the longest begin first.
	length time.Duration
	run    func(l *lane)
}

const (
	second = time.Second
	minute = time.Minute

	// statusSeen is by when plegd knows what Status says: the phase of its calls, 5 s, and the 3 s in which a call that
	// fails or hangs is named (docs/accuracy.md, Predictions and Causes).
	statusSeen = 8 * second

	// hold is the duration of a fault after the API's NotReady: longer than every window
	// that plegd predicts, and longer than the delay of a page.
	hold = 40 * second

	// startUnknown is the time from a kubelet's start to its first relist, leaseUnknown the phases of its lease and of the
	// node controller, statusUnknown those of its Status calls and metrics. Of a fault before plegd's start all is unknown
	// up to the kubelet's threshold. eventedUnknown lies between the thresholds of a kubelet that may rely on events or not.
	eventedUnknown = 7 * time.Minute
	startUnknown   = 6 * time.Second
	leaseUnknown   = 15 * time.Second
	statusUnknown  = 11 * time.Second
	faultUnknown   = 3 * minute

	// tokenCached is how long the API server accepts a token that has been revoked (TokenSuccessCacheTTL), refusedSeen by
	// when plegd knows: two renewals of the lease are missed.
	tokenCached = 10 * second
	refusedSeen = tokenCached + 28*second
)

var scenarios = []scenario{
	frozen(20*second, false), frozen(33*second, true), frozen(45*second, false),
	frozen(63*second, true), frozen(150*second, true), frozen(270*second, false),
	killed(5*second, false), killed(28*second, true), killed(45*second, true),
	failing("ListPodSandbox hangs", "ListPodSandbox=hang", 200*second, scenario{minor: true, loopSilent: true}),
	failing("ListContainers hangs", "ListContainers=hang", 200*second, scenario{loopSilent: true}),
	// The second relist ends 221 s after the fault: by then the first one's start is too old, and then it is not.
	lasting("ListContainers takes 110 s", "ListContainers=delay(110s)", 260*second, scenario{loopSilent: true, predicted: 133 * second}),
	failing("Version and both lists hang", "Version=hang;ListPodSandbox=hang;ListContainers=hang", 320*second, scenario{loopSilent: true}),
	lasting("Version hangs", "Version=hang", 140*second, scenario{minor: true, wantReady: true}),
	failing("Status hangs", "Status=hang", 60*second, scenario{minor: true, statusRule: true, predicted: statusSeen}),
	failing("Status fails", "Status=error(Unknown: failed to get runtime status)", 60*second, scenario{statusRule: true, predicted: statusSeen}),
	lasting("Status takes 20 s", "Status=delay(20s)", 90*second, scenario{statusRule: true, predicted: statusSeen}),
	lasting("Status takes 40 s", "Status=delay(40s)", 110*second, scenario{statusRule: true, predicted: statusSeen}),
	failing("RuntimeReady is false", "Status=notready(RuntimeReady)", 40*second, scenario{minor: true, statusRule: true, predicted: statusSeen}),
	failing("NetworkReady is false", "Status=notready(NetworkReady)", 40*second, scenario{minor: true, loopSilent: true, predicted: statusSeen}),
	{
		name: "the CNI configuration is removed", real: true, loopSilent: true, predicted: statusSeen, length: 60 * second,
		run: func(l *lane) {
			l.Fault()
			l.removeCNI()
			l.holdNotReady(60 * second)
			l.Recovery()
			l.containerd.WriteCNIConfig()
		},
	},
	failing("a list is larger than 16 MiB", "ListContainers=oversize(17MiB)", 200*second, scenario{}),
	{
		name: "60 inspections take 1 s each", wantReady: true, length: 120 * second,
		run: func(l *lane) {
			l.simulated.Fail("ContainerStatus=delay(1s)")
			l.Fault()
			l.simulated.Do(order{Restart: 30}) // in each pod one has ended, one has begun
			l.Sleep(90 * second)
			l.heal()
		},
	},
	{
		name: "240 inspections take 1 s each", minor: true, length: 280 * second,
		run: func(l *lane) {
			l.simulated.Fail("ContainerStatus=delay(1s);PodSandboxStatus=delay(1s)")
			l.Fault()
			l.simulated.Do(order{Restart: 80})
			l.AwaitReady(false, 220*second)
			l.AwaitReady(true, 100*second)
			l.heal()
		},
	},
	stuckPods("ContainerStatus of one pod hangs", 1, 150*second),
	stuckPods("ContainerStatus of two pods hangs", 2, 270*second),
	flapping(60*second, 20*second, 3), flapping(20*second, 20*second, 4),
	{
		name: "the kubelet is restarted 20 s into a list hang", loopSilent: true, unknown: startUnknown, predicted: 26 * second, length: 180 * second,
		run: kubeletRestarted("ListContainers=hang", 20*second, 220*second),
	},
	{
		// plegd looks every 4 s, and takes a kubelet that answers nothing for 10 s for a
		// silent one: before that, any that has just been started may be about to serve.
		name: "the kubelet is restarted 10 s into a Status hang", loopSilent: true, unknown: leaseUnknown, predicted: 26 * second,
		deviation: "a kubelet 1.34 waits for Status in three loops one after the other, 2 min each, and which of them leads to its first node status update is chance; " +
			"a kubelet 1.36 renews no lease before Status is answered, so the node controller decides, and the phases of lease and controller, which nothing on the node shows, make the window wide",
		length: 90 * second,
		run:    kubeletRestarted("Status=hang", 10*second, 180*second),
	},
	{
		name: "the kubelet is stopped", real: true, minor: true, metrics: true, loopSilent: true, wantReason: "KubeletStalled", length: 60 * second,
		run: func(l *lane) {
			l.Fault()
			l.kubelet.Freeze()
			// Not for so long that the kubelet finds its own last good Status too old.
			l.Sleep(20 * second)
			l.kubelet.Thaw()
			l.Recovery()
		},
	},
	{
		name: "the kubelet is killed", real: true, minor: true, metrics: true, loopSilent: true, wantReason: "KubeletDown", length: 60 * second,
		run: func(l *lane) {
			l.Fault()
			l.kubelet.Kill()
			l.Sleep(25 * second)
			l.StartKubelet()
			l.Recovery()
		},
	},
	{
		name: "SIGSTOP for 90 s, runtimeRequestTimeout 15 s", real: true, minor: true, loopSilent: true,
		requestTimeout: 15 * second, length: 130 * second,
		run: func(l *lane) { l.freeze(90 * second) },
	},
	// An estimate of the kubelet's relists alone makes no node NotReady, and ends with plegd's own lists.
	changing("ListContainers takes 40 s once while pods change", "ListContainers=1*delay(40s)->off", order{Restart: 7}, 90*second),
	changing("ListContainers takes 70 s while pods change", "ListContainers=delay(70s)", order{Restart: 3}, 240*second),
	lasting("EventedPLEG, ListContainers hangs for 280 s", "ListContainers=hang", 280*second, scenario{loopSilent: true, evented: true, minor: true, unknown: eventedUnknown}),
	lasting("Status fails every second time", "Status="+strings.Repeat("1*error(Unknown: m)->1*off->", 40)+"off", 120*second,
		scenario{metrics: true, statusRule: true, loopSilent: true, predicted: 22 * second, unknown: statusUnknown}),
	{
		name: "plegd is restarted 40 s into SIGSTOP for 150 s", real: true, minor: true, loopSilent: true, length: 190 * second,
		run: func(l *lane) {
			l.Fault()
			l.containerd.Freeze()
			l.Sleep(40 * second)
			l.plegd.Kill()
			l.startPlegd()
			l.Sleep(110 * second)
			l.containerd.Thaw()
			l.Recovery()
		},
	},
	{
		name: "plegd starts 60 s into a list hang", loopSilent: true, unknown: faultUnknown, length: 260 * second,
		run: func(l *lane) {
			l.plegd.Kill()
			lab.Must(l, os.RemoveAll(l.path("state")))
			l.Fault()
			l.simulated.Fail("ListContainers=hang")
			l.Sleep(60 * second)
			l.startPlegd()
			l.PredictedWithin(6 * second)
			l.holdNotReady(200 * second)
			l.heal()
		},
	},
	changing("ListContainers takes 70 s while pods end", "ListContainers=delay(70s)", order{End: 3}, 240*second),
	failing("EventedPLEG, ListContainers hangs", "ListContainers=hang", 600*second, scenario{loopSilent: true, evented: true, unknown: eventedUnknown}),
	failing("EventedPLEG and metrics, ListContainers hangs", "ListContainers=hang", 600*second,
		scenario{loopSilent: true, evented: true, metrics: true, minor: true, unknown: startUnknown}),
	{
		name: "EventedPLEG, the runtime is restarted, ListContainers hangs", evented: true, loopSilent: true, unknown: eventedUnknown, length: 280 * second,
		run: func(l *lane) {
			l.simulated.Restart()
			lab.Eventually(l, minute, "all is well", l.well)
			l.Sleep(calm)
			l.Fault()
			l.simulated.Fail("ListContainers=hang")
			l.holdNotReady(220 * second)
			l.heal()
		},
	},
	{
		name: "the kubelet moves to another runtime, whose Status fails", unnamed: true, loopSilent: true, statusRule: true,
		length: 160 * second,
		run: func(l *lane) {
			l.Fault()
			l.moveKubelet()
			l.Sleep(60 * second)
			l.simulated.Fail("Status=error(Unknown: failed to get runtime status)")
			l.PredictedWithin(statusSeen)
			l.holdNotReady(minute)
			l.heal()
		},
	},
	{
		name: "the API server cannot be reached", minor: true, loopSilent: true, wantReason: "KubeletDisconnected", unknown: leaseUnknown,
		predicted: 26 * second, reasonWithin: 26 * second, goneWithin: 20 * second, length: 140 * second,
		run: func(l *lane) {
			l.Fault()
			l.dropAPI("-A")
			l.holdNotReady(90 * second)
			l.Recovery()
			l.dropAPI("-D")
		},
	},
	{
		name: "the kubelet without healthz is killed", healthzOff: true, loopSilent: true, wantReason: "KubeletDown", unknown: leaseUnknown,
		predicted: 21 * second, reasonWithin: 20 * second, goneWithin: 15 * second, length: 120 * second,
		run: func(l *lane) {
			l.Fault()
			l.kubelet.Kill()
			l.holdNotReady(90 * second)
			l.StartKubelet()
			l.Recovery()
		},
	},
	{
		name: "the kubelet's client certificate expires", minor: true, loopSilent: true, wantReason: "KubeletDisconnected", unknown: leaseUnknown,
		predicted: 26 * second, reasonWithin: 26 * second, goneWithin: 20 * second, length: 240 * second,
		run: func(l *lane) {
			expiry := time.Now().Add(2 * minute)
			l.useCredentials(l.cluster.NodeCertificate(l.name, expiry))
			l.Sleep(time.Until(expiry))
			l.Fault()
			l.holdNotReady(90 * second)
			l.useCredentials(nil)
			l.Recovery()
		},
	},
	{
		name: "the kubelet is restarted with a token that is refused", minor: true, loopSilent: true, wantReason: "KubeletDisconnected",
		unknown: leaseUnknown, predicted: 26 * second, reasonWithin: 26 * second, goneWithin: 20 * second, length: 140 * second,
		run: func(l *lane) {
			l.Fault()
			l.useCredentials(map[string]any{"token": "revoked"})
			l.holdNotReady(90 * second)
			l.useCredentials(nil)
			l.Recovery()
		},
	},
	{
		name: "the kubelet's token is refused while it runs", minor: true, loopSilent: true, wantReason: "KubeletDisconnected",
		unknown: leaseUnknown + tokenCached, predicted: refusedSeen, reasonWithin: refusedSeen, goneWithin: 20 * second, length: 200 * second,
		run: func(l *lane) { l.tokenRefused(func() {}) },
	},
	{
		// Without a watch of its Node, the kubelet waits for up to a minute before it lists it again.
		name: "the kubelet's token is refused while it runs, and its connections are cut", loopSilent: true, wantReason: "KubeletDisconnected",
		unknown: leaseUnknown + tokenCached, predicted: refusedSeen, reasonWithin: refusedSeen, goneWithin: 20 * second, length: 260 * second,
		run: func(l *lane) {
			l.tokenRefused(func() {
				l.Sleep(tokenCached)
				l.cutAPI()
			})
		},
	},
}

// frozen stops containerd for a while.
func frozen(d time.Duration, minor bool) scenario {
	return scenario{
		name: "SIGSTOP for " + seconds(d), real: true, minor: minor, loopSilent: true, length: d + 40*second,
		run: func(l *lane) { l.freeze(d) },
	}
}

func (l *lane) freeze(d time.Duration) {
	l.Fault()
	l.containerd.Freeze()
	l.Sleep(d)
	l.containerd.Thaw()
	l.Recovery()
}

// killed ends containerd and starts it again after a while.
func killed(d time.Duration, minor bool) scenario {
	return scenario{
		name: "killed, started again after " + seconds(d), real: true, minor: minor, statusRule: true, length: d + 40*second,
		run: func(l *lane) {
			l.Fault()
			l.containerd.Kill()
			l.Sleep(d)
			l.containerd.Start()
			l.Recovery()
		},
	}
}

// failing sets failpoints until the API shows NotReady, and a while longer.
func failing(name, failpoints string, length time.Duration, s scenario) scenario {
	s.name, s.length = name, length+70*second
	s.run = func(l *lane) {
		l.Fault()
		l.simulated.Fail(failpoints)
		l.holdNotReady(length + 2*minute)
		l.heal()
	}
	return s
}

// lasting sets failpoints for a time.
func lasting(name, failpoints string, d time.Duration, s scenario) scenario {
	s.name, s.length = name, d+70*second
	s.run = func(l *lane) {
		l.Fault()
		l.simulated.Fail(failpoints)
		l.Sleep(d)
		l.heal()
	}
	return s
}

// changing sets failpoints for a time in which containers of some pods change every 20 s. plegd reads the
// kubelet's metrics.
func changing(name, failpoints string, change order, d time.Duration) scenario {
	return scenario{
		name: name, minor: true, metrics: true, loopSilent: true, length: d + 70*second,
		predicted: 95 * second, // between two slow lists no call hangs
		run: func(l *lane) {
			l.Fault()
			l.simulated.Fail(failpoints)
			for range d / (20 * second) {
				l.simulated.Do(change)
				l.Sleep(20 * second)
			}
			l.heal()
		},
	}
}

// stuckPods makes the status of the containers of some pods hang for a while. The
// kubelet inspects pod after pod and gives each 2 min.
func stuckPods(name string, pods int, d time.Duration) scenario {
	return scenario{
		name: name, length: d + 60*second, wantReady: pods == 1,
		run: func(l *lane) {
			l.Fault()
			l.simulated.Do(order{Stuck: &pods})
			l.Sleep(d)
			l.Recovery()
			none := 0
			l.simulated.Do(order{Stuck: &none})
		},
	}
}

// flapping stops containerd again and again.
func flapping(stopped, running time.Duration, times int) scenario {
	return scenario{
		name: "stopped for " + seconds(stopped) + ", running for " + seconds(running) + ", again and again",
		real: true, loopSilent: true, length: time.Duration(times)*(stopped+running) + 40*second,
		run: func(l *lane) {
			l.Fault()
			for range times {
				l.containerd.Freeze()
				l.Sleep(stopped)
				l.containerd.Thaw()
				l.Sleep(running)
			}
			l.Recovery()
		},
	}
}

func seconds(d time.Duration) string { return strconv.Itoa(int(d.Seconds())) + " s" }

// kubeletRestarted restarts the kubelet some time into a fault that lasts until the
// API has shown NotReady, which it must within a limit.
func kubeletRestarted(fault string, after, notReadyWithin time.Duration) func(*lane) {
	return func(l *lane) {
		l.Fault()
		l.simulated.Fail(fault)
		l.Sleep(after)
		l.kubelet.Kill()
		l.StartKubelet()
		l.holdNotReady(notReadyWithin)
		l.heal()
	}
}
