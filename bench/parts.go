package main

import (
	"context"
	"time"

	"github.com/plegd/plegd/internal/beat"
	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/evidence"
)

// The parts of plegd that are measured alone, as children.
const (
	evidenceName = "evidence"
	probesName   = "probes"
)

// runsAsPlegd reports whether a child is a part of plegd, which runs as plegd does.
func runsAsPlegd(name string) bool {
	return name == relistName || name == evidenceName || name == probesName
}

// runEvidence runs the sources of evidence that the daemon runs, at the pace that
// they have while all is well.
func runEvidence(ctx context.Context, socket string) error {
	path := func() string { return socket }
	conn, err := evidence.LookFirst("/proc", path)(ctx)
	if err != nil {
		return err
	}
	pid := cri.PeerPID(conn)
	at := time.Now()
	_ = conn.Close()
	sources, err := evidence.NewRegistry(evidence.Options{
		ProcFS: "/proc", SysFS: "/sys", Path: path,
		HeldPeer: func() int { return pid }, NewestPeer: func() (int, time.Time) { return pid, at },
		DockerSocket: evidence.DefaultDockerSocket, BehindDocker: func() bool { return false },
		Kubelet: evidence.KubeletOptions{HealthzURL: evidence.DefaultKubeletHealthz},
	})
	if err != nil {
		return err
	}
	for _, source := range sources.All {
		go func() { _ = source.Run(ctx) }()
	}
	go func() { _ = evidence.NewActivity("/proc").Run(ctx) }()
	return nil
}

// runProbes makes the calls besides the two lists: the fresh dial every 3 s,
// Status and Version every 5 s, as while all is well.
func runProbes(ctx context.Context, socket string) error {
	path := func() string { return socket }
	dialer := evidence.NewDialer(evidence.DialOptions{Path: path, Period: 3 * time.Second, Pace: beat.After, Calm: func() bool { return true }, Timeout: time.Second})
	go func() { _ = dialer.Run(ctx) }()
	client, err := cri.New(cri.Options{Path: socket})
	if err != nil {
		return err
	}
	go func() {
		for tick := time.NewTicker(5 * time.Second); ; {
			_, _ = client.Status(ctx, false)
			_, _ = client.Version(ctx)
			<-tick.C
		}
	}()
	return nil
}
