package daemon

import (
	"context"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/plegd/plegd/internal/bounded"
	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/events"
	"github.com/plegd/plegd/internal/evidence"
	"github.com/plegd/plegd/internal/evidence/kubelet"
	"github.com/plegd/plegd/internal/exporter"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/incident"
	"github.com/plegd/plegd/internal/ledger"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/internal/relist"
	"github.com/plegd/plegd/internal/server"
	"github.com/plegd/plegd/internal/view"
)

// task is a part of plegd that runs until its context ends, and then returns nil soon.
type task func(context.Context) error

// shown is any part that is displayed like a source of evidence.
type shown interface {
	Source() (facts.Source, bool)
}

// Daemon is plegd, put together.
type Daemon struct {
	cfg      Config
	log      *zap.Logger
	started  time.Time
	restored restored
	tasks    []task
	readies  []<-chan struct{}

	metrics   *exporter.Metrics
	gatherer  prometheus.TransactionalGatherer
	history   *view.History // for the page
	incidents *incident.Recorder
	sights    bounded.Slot[proc.Process] // looks at a process when an incident ends

	client   *cri.Client // the held connection
	endpoint atomic.Pointer[facts.Endpoint]
	searched chan struct{} // closed when the first search for the socket has ended
	loop     *relist.Loop
	status   atomic.Pointer[facts.Status]
	version  atomic.Pointer[facts.VersionCheck]
	runtime  atomic.Pointer[facts.Runtime]
	plugin   atomic.Pointer[facts.CRIPlugin] // nil while runtime.v1 is served
	dialer   *evidence.Dialer
	sources  *evidence.Registry
	shown    map[string]shown            // parts that are no source, by name
	events   *events.Subscriber          // nil without --events
	chain    atomic.Pointer[facts.Chain] // nil while no call hangs
	// proven is what the chain of a call has proved, as long as it outlives the call, nil for nothing.
	proven atomic.Pointer[facts.Finding]
	// second is the chain of a reason beside the primary one, nil for none.
	second atomic.Pointer[facts.Finding]
	ledger *ledger.Ledger
	owed   owed

	judging
}

// loopObserver counts relists and pod lifecycle events, and logs those events that the kubelet delivers.
type loopObserver struct {
	*exporter.Metrics

	history *view.History
	log     *zap.Logger
}

// RelistDone implements relist.Observer.
func (o loopObserver) RelistDone(duration time.Duration, ok bool) {
	o.Metrics.RelistDone(duration, ok)
	o.history.Add(time.Now(), duration, ok)
}

// Event implements relist.Observer.
func (o loopObserver) Event(e relist.Event) {
	o.Metrics.Event(e)
	if e.Type == relist.ContainerChanged {
		return // the kubelet does not deliver it
	}
	o.log.Debug("pod lifecycle event", zap.String("type", string(e.Type)), zap.String("pod_uid", e.PodUID),
		zap.String("pod", e.PodName), zap.String("namespace", e.PodNamespace), zap.String("container_id", e.ID),
		zap.Bool("sandbox", e.Sandbox), zap.String("container", e.Name))
}

// New puts a daemon together. cfg has been validated. Without a state directory it
// remembers nothing. It fails if another plegd uses that directory.
func New(cfg Config, build exporter.Build, log *zap.Logger) (*Daemon, error) {
	registry := exporter.NewRegistry(build)
	d := &Daemon{
		cfg: cfg, log: log, started: time.Now(), searched: make(chan struct{}),
		metrics: exporter.NewMetrics(registry), gatherer: prometheus.ToTransactionalGatherer(registry),
		history: view.NewHistory(time.Now()),
		judging: judging{
			pace:          newPacer(),
			news:          bounded.NewSignal(),
			changed:       bounded.NewSignal(),
			failed:        map[string]string{},
			messages:      make(chan string, 16),
			readyToNotify: bounded.NewSignal(),
			notifyEvery:   statusEvery,
			suspended:     cfg.suspended(),
		},
	}
	bounded.ReportPanics(func(e *bounded.PanicError) {
		log.Error("recovered from a panic: please report it", zap.Any("panic", e.Value), zap.ByteString("stack", e.Stack))
	})
	// systemd wants a message at least every WATCHDOG_USEC. Three in that time leave room for a late one.
	if every, err := sd.SdWatchdogEnabled(false); err == nil && every > 0 {
		d.notifyEvery = min(every/3, statusEvery)
	}
	if err := d.remember(build); err != nil {
		return nil, err
	}
	d.status.Store(&d.restored.Status)
	d.version.Store(&facts.VersionCheck{})
	d.runtime.Store(&facts.Runtime{})
	d.resume()
	d.watch()
	d.judge(d.started) // plegd is starting
	// Without the node, as where its root is on a file system that hangs, a metric has no labels.
	node, _ := new(bounded.Slot[exporter.Node]).Do(context.Background(), stateTimeout,
		func(context.Context) (exporter.Node, error) { return exporter.ReadNode(cfg.ProcFS, cfg.SysFS), nil })
	registry.MustRegister(exporter.NewCollector(d, node, build.Version))
	d.run(d.find, d.afterSearch(d.loop.Run), d.afterSearch(d.checkStatus), d.checkVersion,
		d.dialer.Run, d.sources.Run, d.followChain, d.followSecond, d.keepLedger, d.runJudge, d.runNotifier)
	d.readies = append(d.readies, d.loop.Ready())
	d.serve(build)
	return d, nil
}

func (d *Daemon) run(tasks ...task) { d.tasks = append(d.tasks, tasks...) }

// remember opens the state directory.
func (d *Daemon) remember(build exporter.Build) (err error) {
	d.shown = map[string]shown{}
	d.incidents = incident.New(incident.Dir(d.cfg.StateDir), build.Version, d.log, d.metrics.IncidentOpened)
	if d.cfg.StateDir == "" {
		return nil
	}
	state := &store{
		dir: d.cfg.StateDir, procfs: d.cfg.ProcFS, log: d.log, clock: d.cfg.clock, changed: d.changed,
		facts:     func() *facts.Facts { return &d.Published().Facts },
		recent:    func() []view.RelistBin { return d.history.Bins(time.Now()) },
		condition: d.condition.Load,
		owed:      func() map[string]time.Time { return d.ledger.Ages() },
		memory:    func() ledger.Memory { return d.ledger.Memory() },
	}
	d.restored, err = state.open()
	if err != nil {
		return err
	}
	d.incidents.Resume(d.restored.written)
	d.incidents.Look(d.sighting)
	d.history.Restore(d.restored.written, d.restored.Recent)
	d.shown["state"] = state
	d.shown["incidents"] = d.incidents
	d.run(d.incidents.Run, state.Run)
	return nil
}

// watch makes the parts that call the runtime and sample the node.
func (d *Daemon) watch() {
	cfg := &d.cfg
	d.client = cri.New(cri.Options{
		Dial:       cfg.Dial,
		Explain:    evidence.ConnectCause,
		RPCTimeout: cfg.RPCTimeout,
		Observer:   d.metrics,
	})
	d.endpoint.Store(&facts.Endpoint{Searching: true})
	if cfg.RuntimeEndpoint != "" {
		path, _ := kubelet.ParseEndpoint(cfg.RuntimeEndpoint) // validated
		d.watchSocket(&kubelet.Found{Endpoint: facts.Endpoint{Path: path, Source: "--runtime-endpoint"}})
	}
	d.loop = relist.New(d.client, cfg.RelistPeriod, loopObserver{Metrics: d.metrics, history: d.history, log: d.log})
	d.loop.Throttled = proc.NewThrottling(cfg.ProcFS, cfg.SysFS).Total
	d.dialer = evidence.NewDialer(evidence.DialOptions{
		Path:     d.path,
		Dial:     cfg.Dial,
		Period:   cfg.ProbePeriod,
		Timeout:  cfg.ProbeTimeout,
		Observer: d.metrics,
		Pulse:    d.pace.pulsed,
		Done: func(p facts.Probe) {
			d.metrics.ProbeDone(p)
			if !p.OK {
				d.news.Send()
			}
		},
	})
	d.shown["dial"] = d.dialer
	d.sources = evidence.NewRegistry(evidence.Options{
		ProcFS: cfg.ProcFS, SysFS: cfg.SysFS, Dialer: d.dialer, Dialed: d.client.LastDial, Client: d.client, DockerSocket: cfg.DockerSocket,
		Notify: d.news.Send, Pulse: d.pace.pulsed, Changes: func() uint64 { return d.loop.Snapshot().Changes },
		Pinned: cfg.RuntimeEndpoint != "",
		Kubelet: kubelet.Options{
			HealthzURL: cfg.KubeletHealthzURL, MetricsURL: cfg.KubeletMetricsURL,
			TokenFile: cfg.KubeletTokenFile, CAFile: cfg.KubeletCAFile, Seen: d.restored.KubeletSeen,
		},
	})
	d.shown["ledger"] = &d.owed
	d.ledger = ledger.New(ledger.Options{
		Table: d.sources.Table, Shims: d.sources.Shims, SysFS: cfg.SysFS, PIDs: d.sources.PIDs, Sockets: d.sources.Sockets, Pod: d.pod,
		Begun: d.restored.owed, Recalled: d.restored.memory, Listed: d.listedByID, ListedAt: d.listedAt, TakeDropped: d.client.TakeDropped, HasBegun: d.client.HasBegun, NetworkOf: d.client.NetworkOf, NetworkPlugins: d.client.NetworkPlugins, Suspects: d.suspects, Failures: d.inspectionErrors,
		StartsWait: d.startsWait, CallsAreSlow: d.callsAreSlow, EndsPods: d.endsPods,
		FailedStarts: d.client.FailedStarts, StartsFail: d.startsFail, CreatesFail: d.createsFail,
	})
	if cfg.Events != relist.Off {
		d.events = events.New(events.Options{
			Source: d.client, Loop: d.loop, Lease: cfg.EventsLease, AllowUnsafe: cfg.EventsAllowUnsafe,
			Mode: string(cfg.Events), Rely: cfg.Events == relist.Evented,
		})
		d.run(d.events.Run)
	}
}

// serve adds the web server and the control socket.
func (d *Daemon) serve(build exporter.Build) {
	opts := server.HandlerOptions{
		Build: build, Recent: d.history.Bins, Log: server.Sampled(d.log), Judged: func() time.Time { return d.Published().At },
		Incident: d.incidents.Get,
	}
	opts.Node, _ = os.Hostname() // only for the page's title
	handler := func(access server.Access) http.Handler {
		opts.Access = access
		return server.NewHandler(d, d.gatherer, opts)
	}
	add := func(name string, s *server.Server) {
		d.shown[name] = s
		d.run(s.Run)
		d.readies = append(d.readies, s.Ready())
	}
	if len(d.cfg.WebListenAddresses)+len(d.cfg.WebListeners) > 0 {
		access := server.RootOrAuthenticated(proc.TCPOwner)
		add("web", server.NewWebServer(d.cfg.WebListenAddresses, d.cfg.WebListeners, d.cfg.WebConfigFile,
			handler(access), access, d.metrics.ConnectionRefused, d.log))
	}
	if d.cfg.ControlSocket != "" {
		add("control", server.NewControlServer(d.cfg.ControlSocket, handler(server.FullAccess), d.log))
	}
}

// Run runs every task until ctx ends, and returns nil then; else it returns the error
// of the task that failed.
func (d *Daemon) Run(ctx context.Context) error {
	defer func() { _ = d.client.Close() }()
	group, ctx := errgroup.WithContext(ctx)
	for _, run := range d.tasks {
		group.Go(func() error { return run(ctx) })
	}
	group.Go(func() error {
		for _, r := range d.readies {
			select {
			case <-ctx.Done():
				return nil
			case <-r:
			}
		}
		d.readyToNotify.Send()
		return nil
	})
	return group.Wait()
}

// Published returns the newest snapshot.
func (d *Daemon) Published() *facts.Snapshot { return d.published.Load() }

// Snapshot returns the newest snapshot with its ages as of a moment. It changes nothing.
func (d *Daemon) Snapshot(t time.Time) facts.Snapshot { return d.Published().AsOf(t) }

// Incidents returns the heads of the incidents, newest first.
func (d *Daemon) Incidents() []incident.Summary { return d.incidents.List() }
