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
	"github.com/plegd/plegd/internal/events"
	"github.com/plegd/plegd/internal/evidence"
	"github.com/plegd/plegd/internal/exporter"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/incident"
	"github.com/plegd/plegd/internal/relist"
	"github.com/plegd/plegd/internal/server"
	"github.com/plegd/plegd/internal/view"
)

// task is a part of plegd that runs until its context ends, and then returns nil soon.
type task func(context.Context) error

// Daemon is plegd, put together.
type Daemon struct {
	*parts

	judge     *judge
	metrics   *exporter.Metrics
	gatherer  prometheus.TransactionalGatherer
	notifier  *notifier
	incidents *incident.Recorder // nil unless the daemon remembers
	tasks     []task
	readies   []<-chan struct{}
}

// parts are what the facts are gathered from.
type parts struct {
	cfg      Config
	started  time.Time
	restored restored
	runtime  *runtime
	loop     *relist.Loop
	status   *statusCheck
	version  *versionCheck
	dialer   *evidence.Dialer
	sources  *sources
	events   *events.Subscriber           // nil without --events
	chain    atomic.Pointer[health.Chain] // nil while no call hangs
}

// signal asks for something to be done soon; it holds one request.
type signal chan struct{}

func (s signal) send() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// New puts a daemon together. cfg has been validated. Without a state directory it
// remembers nothing. It fails if another plegd uses that directory.
func New(cfg Config, build exporter.Build, log *zap.Logger) (*Daemon, error) {
	registry := exporter.NewRegistry(build)
	metrics, news, changed := exporter.NewMetrics(registry), make(signal, 1), make(signal, 1)
	d := &Daemon{
		parts: &parts{cfg: cfg, started: time.Now()}, metrics: metrics, notifier: newNotifier(),
		gatherer: prometheus.ToTransactionalGatherer(registry),
	}
	state := &store{
		dir: cfg.StateDir, procfs: cfg.ProcFS, log: log, clock: monotonic, changed: changed,
		facts:  func() *health.Facts { return &d.Published().Facts },
		recent: func() []view.RelistBin { return metrics.Recent(time.Now()) },
	}
	var err error
	if cfg.StateDir != "" {
		if d.restored, err = state.open(); err != nil {
			return nil, err
		}
		metrics.Restore(d.restored.written, d.restored.recent)
		d.incidents = incident.New(incident.Dir(cfg.StateDir), build.Version, log, metrics.IncidentOpened)
	}
	if err := d.watch(metrics, news, log); err != nil {
		return nil, err
	}
	if cfg.StateDir != "" {
		d.sources.self["state"] = state
		d.run(d.incidents.Run, state.Run)
	}
	d.judge = &judge{
		parts: d.parts, log: log, metrics: metrics, notifier: d.notifier, incidents: d.incidents,
		news: news, changed: changed,
	}
	d.judge.judge(d.started) // plegd is starting
	registry.MustRegister(exporter.NewCollector(d, nodeInfo(cfg.ProcFS, cfg.SysFS), build.Version))
	wait := &waiting{parts: d.parts, log: log, published: d.Published, news: news}
	d.run(
		func(ctx context.Context) error { return d.runtime.find(ctx, d.loop.Relist) },
		d.runtime.afterSearch(d.loop.Run), d.runtime.afterSearch(d.status.Run), d.dialer.Run, d.judge.Run,
		d.notifier.Run, d.version.Run, d.sources.Run, wait.Run,
		func(ctx context.Context) error { return logEvents(ctx, d.loop.Events(), log) },
	)
	d.readies = append(d.readies, d.loop.Ready())
	if d.events != nil {
		d.run(d.events.Run)
	}
	d.serve(build, log)
	return d, nil
}

// watch makes the parts that call the runtime and sample the node.
func (d *Daemon) watch(metrics *exporter.Metrics, news signal, log *zap.Logger) (err error) {
	cfg := &d.cfg
	if d.runtime, err = newRuntime(cfg, metrics, log); err != nil {
		return err
	}
	d.loop = relist.New(d.runtime, relist.Config{
		Period: cfg.RelistPeriod, RPCTimeout: cfg.RPCTimeout,
	}, metrics)
	d.status = newStatusCheck(d.runtime, d.restored.status, news.send)
	d.dialer = evidence.NewDialer(evidence.DialOptions{
		Path: d.runtime.path, Dial: cfg.Dial,
		Serves: d.runtime.mayServe, Period: cfg.ProbePeriod, Timeout: cfg.ProbeTimeout, Observer: metrics,
		Done: func(p health.Probe) {
			metrics.ProbeDone(p)
			if !p.OK {
				news.send()
			}
		},
	})
	d.version = &versionCheck{rt: d.runtime, loop: d.loop, status: d.status, dialer: d.dialer}
	if d.sources, err = newSources(d.parts, log); err != nil {
		return err
	}
	for _, s := range d.sources.Sources() {
		s.Notify(news.send)
	}
	if cfg.Events != relist.Off {
		d.events = events.New(events.Options{
			Source: d.runtime, Loop: d.loop, Lease: cfg.EventsLease, AllowUnsafe: cfg.EventsAllowUnsafe,
			Mode: string(cfg.Events), Rely: cfg.Events == relist.Evented,
		})
	}
	return nil
}

func (d *Daemon) run(tasks ...task) { d.tasks = append(d.tasks, tasks...) }

// serve adds the web server and the control socket.
func (d *Daemon) serve(build exporter.Build, log *zap.Logger) {
	opts := server.HandlerOptions{
		Build: build, Recent: d.metrics.Recent, Log: log, Judged: func() time.Time { return d.Published().At },
	}
	opts.Node, _ = os.Hostname() // only for the page's title
	if d.incidents != nil {
		opts.Incident = d.incidents.Get
	}
	handler := func(access server.Access) http.Handler {
		with := opts
		with.Access = access
		return server.NewHandler(d, d.gatherer, with)
	}
	add := func(name string, s *server.Server) {
		d.sources.self[name] = s
		d.run(s.Run)
		d.readies = append(d.readies, s.Ready())
	}
	if len(d.cfg.WebListenAddresses)+len(d.cfg.WebListeners) > 0 {
		add("web", server.NewWebServer(d.cfg.WebListenAddresses, d.cfg.WebListeners, d.cfg.WebConfigFile,
			handler(server.LocalOrAuthenticated(d.cfg.WebConfigFile)), log))
	}
	if d.cfg.ControlSocket != "" {
		add("control", server.NewControlServer(d.cfg.ControlSocket, handler(server.FullAccess), log))
	}
}

// Run runs every task until ctx ends, and returns nil then; else it returns the error
// of the task that failed.
func (d *Daemon) Run(ctx context.Context) error {
	defer func() { _ = d.runtime.Close() }()
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
		d.notifier.send(sd.SdNotifyReady)
		return nil
	})
	return group.Wait()
}

// Published returns the newest snapshot.
func (d *Daemon) Published() *health.Snapshot { return d.judge.published.Load() }

// Snapshot returns the newest snapshot with its ages as of now. It changes nothing.
func (d *Daemon) Snapshot(now time.Time) health.Snapshot { return d.Published().AsOf(now) }

// Incidents returns the heads of the incidents, newest first.
func (d *Daemon) Incidents() []incident.Summary {
	if d.incidents == nil {
		return nil
	}
	return d.incidents.List()
}

// nodeInfo reads the node's description in the background: /proc/1/root may be on
// a file system that hangs.
func nodeInfo(procfs, sysfs string) func() exporter.Node {
	var node atomic.Pointer[exporter.Node]
	node.Store(&exporter.Node{})
	go func() {
		_ = bounded.Recovered(func() error { // without it the metric has no labels
			n := exporter.ReadNode(procfs, sysfs)
			node.Store(&n)
			return nil
		})
	}()
	return func() exporter.Node { return *node.Load() }
}

// logEvents reads the events, so that the channel does not fill, and logs them. It
// returns nil when ctx ends.
func logEvents(ctx context.Context, events <-chan relist.Event, log *zap.Logger) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case ev := <-events:
			log.Debug("pod lifecycle event", zap.Inline(ev))
		}
	}
}
