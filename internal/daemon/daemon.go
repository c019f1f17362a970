package daemon

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"time"

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

// Task is a part of plegd that runs: until its context ends, and then returns
// nil soon.
type Task interface {
	Run(context.Context) error
	String() string
}

// Daemon is plegd, put together.
type Daemon struct {
	cfg      Config
	log      *zap.Logger
	registry *prometheus.Registry
	gatherer prometheus.TransactionalGatherer
	web      *server.Server
	tasks    []Task
	readies  []<-chan struct{}

	started  time.Time
	restored restored
	runtime  *runtime
	loop     *relist.Loop
	status   *statusCheck
	version  *versionCheck
	dialer   *evidence.Dialer
	sources  *sources
	waiting  *waiting
	events   *events.Subscriber // nil without --events
	kubelet  kubeletModel       // the judge's alone
	// nodeStatus is what the writer last said. It is the judge's alone.
	nodeStatus *health.NodeStatus
	judge      *judge
	notifier   *notifier
	metrics    *exporter.Metrics
	// incidents is nil unless the daemon remembers.
	incidents *incident.Recorder
}

// New puts a daemon together: the watch without the servers. cfg has been
// validated.
func New(cfg Config, build exporter.Build, log *zap.Logger) (*Daemon, error) {
	d := &Daemon{cfg: cfg, log: log, registry: exporter.NewRegistry(build), started: time.Now(), notifier: newNotifier()}
	metrics := exporter.NewMetrics(d.registry)
	d.metrics = metrics
	d.registry.MustRegister(exporter.NewCollector(d, nodeInfo(cfg.ProcFS, cfg.SysFS), build.Version))
	d.gatherer = prometheus.ToTransactionalGatherer(d.registry)

	var err error
	if d.runtime, err = newRuntime(&d.cfg, metrics, log); err != nil {
		return nil, err
	}
	d.loop = relist.New(d.runtime, relist.Config{
		Period: cfg.RelistPeriod, RPCTimeout: cfg.RPCTimeout, KubeletRuns: true,
	}, metrics)
	d.runtime.changed = d.loop.Relist
	d.events = d.newEvents()
	d.dialer = evidence.NewDialer(evidence.DialOptions{
		Path: d.runtime.path, Dial: cfg.dialer(d.runtime.path), Looks: cfg.lookFirst, Held: d.runtime.waiting,
		Serves: d.mayServe, Period: cfg.ProbePeriod, Timeout: cfg.ProbeTimeout,
		Observer: metrics, Done: func(p health.Probe) {
			metrics.ProbeDone(p)
			e := d.sources.facts(&p)
			if cause := exporter.AcceptFailure(p, &e); cause != "" {
				metrics.AcceptFailed(cause)
			}
			if !p.OK {
				d.judge.poke()
			}
		},
	})
	if d.sources, err = d.newSources(); err != nil {
		return nil, err
	}
	d.waiting = &waiting{d: d}
	d.tasks = append(d.tasks, d.waiting)
	d.judge = &judge{
		d: d, news: make(chan struct{}, 1), changed: make(chan struct{}, 1),
	}
	for _, s := range d.sources.Sources() {
		s.Notify(d.judge.poke)
	}
	d.judge.begin(d.started)
	d.begin(restored{})
	d.readies = append(d.readies, d.loop.Ready())
	return d, nil
}

// begin sets the start of the watch: empty, or the stored state from before a restart.
func (d *Daemon) begin(r restored) {
	d.restored = r
	d.status = newStatusCheck(d.runtime, r.status, d.judge.poke)
	d.version = &versionCheck{rt: d.runtime, loop: d.loop, status: d.status, dialer: d.dialer}
	d.kubelet = kubeletModel{timeout: d.cfg.RPCTimeout}
}

// Remember makes the daemon store its last state and its incidents in its state
// directory, and start from the stored state. version is plegd's own. The error is an
// *InUseError if another plegd uses that directory.
func (d *Daemon) Remember(version string) error {
	s := newStore(d.cfg.StateDir, d.cfg.ProcFS, d.log)
	if err := s.lock(); err != nil {
		return err
	}
	d.begin(s.load())
	d.metrics.Restore(d.restored.written, d.restored.recent)
	s.recent = func() []view.RelistBin { return d.metrics.Recent(time.Now()).Bins }
	d.incidents = incident.New(incident.Options{
		Dir: incident.Dir(d.cfg.StateDir), Version: version, Log: d.log, Opened: d.metrics.IncidentOpened,
	})
	d.tasks = append(d.tasks, d.incidents)
	k := &keeper{store: s, changed: d.judge.changed,
		facts: func() *health.Facts { return &d.judge.published.Load().Facts }}
	d.sources.own["state"] = k
	d.tasks = append(d.tasks, k)
	return nil
}

// Serve adds the web server and the control socket.
func (d *Daemon) Serve(build exporter.Build) {
	node, err := os.Hostname()
	if err != nil {
		node = "" // not known: nothing depends on it
	}
	handler := func(access server.Access) http.Handler {
		opts := server.HandlerOptions{
			Build: build, Node: node, Recent: d.metrics.Recent, Access: access, Log: d.log,
			Judged: func() time.Time { return d.judge.published.Load().At },
		}
		if d.incidents != nil {
			opts.Incidents = d.incidents
		}
		return server.NewHandler(d, d.gatherer, opts)
	}
	if len(d.cfg.WebListenAddresses)+len(d.cfg.WebListeners) > 0 {
		d.web = server.NewWebServer(server.WebOptions{
			Addresses: d.cfg.WebListenAddresses, Listeners: d.cfg.WebListeners, ConfigFile: d.cfg.WebConfigFile,
		}, handler(server.LocalOrAuthenticated(d.cfg.WebConfigFile)), d.log)
		d.sources.own["web"] = d.web
		d.tasks = append(d.tasks, d.web)
		d.readies = append(d.readies, d.web.Ready())
	}
	if d.cfg.ControlSocket != "" {
		control := server.NewControlServer(d.cfg.ControlSocket, handler(server.FullAccess), d.log)
		d.sources.own["control"] = control
		d.tasks = append(d.tasks, control)
		d.readies = append(d.readies, control.Ready())
	}
}

// Run runs every task until ctx ends, and returns nil then; else it returns the error
// of the task that failed.
func (d *Daemon) Run(ctx context.Context) error {
	defer func() { _ = d.runtime.Close() }()
	tasks := append([]Task{
		d.runtime, afterSearch{d.loop, d.runtime.search}, afterSearch{d.status, d.runtime.search}, d.dialer, d.judge,
		d.notifier,
		d.version,
		&eventLog{events: d.loop.Events(), log: d.log},
	}, d.tasks...)
	if d.events != nil {
		tasks = append(tasks, d.events)
	}
	tasks = append(tasks, d.sources)
	group, ctx := errgroup.WithContext(ctx)
	for _, t := range tasks {
		group.Go(func() error {
			if err := t.Run(ctx); err != nil {
				return fmt.Errorf("%s: %w", t, err)
			}
			return nil
		})
	}
	group.Go(func() error {
		for _, r := range d.readies {
			select {
			case <-ctx.Done():
				return nil
			case <-r:
			}
		}
		d.notifier.ready()
		return nil
	})
	return group.Wait()
}

// Snapshot returns the newest snapshot with its ages as of now. It changes nothing.
func (d *Daemon) Snapshot(now time.Time) health.Snapshot { return d.judge.published.Load().AsOf(now) }

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

// eventLog reads the events, so that the channel does not fill, and logs them.
type eventLog struct {
	events <-chan relist.Event
	log    *zap.Logger
}

// String names the task.
func (e *eventLog) String() string { return "events" }

// Run reads until ctx ends, and then returns nil.
func (e *eventLog) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case ev := <-e.events:
			if !e.log.Core().Enabled(zap.DebugLevel) {
				continue
			}
			fields := []zap.Field{
				zap.String("type", string(ev.Type)), zap.String("pod_uid", ev.PodUID), zap.String("pod", ev.PodName),
				zap.String("namespace", ev.PodNamespace), zap.String("container_id", ev.ID), zap.Bool("sandbox", ev.Sandbox),
				zap.String("container", ev.Name),
			}
			if ev.HasExitCode {
				fields = append(fields, zap.Int32("exit_code", ev.ExitCode))
			}
			e.log.Debug("pod lifecycle event", fields...)
		}
	}
}
