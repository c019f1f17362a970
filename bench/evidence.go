package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/plegd/plegd/internal/evidence"
)

// evidenceName is the subject that asks the node and nothing else.
const evidenceName = "evidence"

// evidenceGoal is what the evidence may cost at 110 pods, in milliseconds of CPU
// a second.
const evidenceGoal = 5

// evidenceCost runs plegd's sources of evidence alone, at the pace of plegd run,
// beside a peer that relists at 1 Hz, both for the same time: on a fake runtime
// with as many shims as it has pods, and a kubelet that answers.
func evidenceCost(ctx context.Context, cfg config, sizes string, window time.Duration) error {
	pods, err := numbers("-pods", sizes)
	if err != nil {
		return err
	}
	fmt.Printf("plegd's sources of evidence alone, beside a peer that relists at 1 Hz, for %s\n%6s %7s %15s %13s %8s %10s\n", window, "pods", "shims", "evidence ms/s", "peer ms/s", "/ peer", "goal")
	for _, n := range pods {
		cfg.pods = int(n)
		if err := besideEvidence(ctx, cfg, window); err != nil {
			return err
		}
	}
	return nil
}

func besideEvidence(ctx context.Context, cfg config, window time.Duration) error {
	dir, err := os.MkdirTemp("", "plegd-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	shims, err := startShims(ctx, dir, cfg.pods)
	defer shims()
	if err != nil {
		return err
	}
	socket := filepath.Join(dir, "runtime.sock")
	server, err := startRuntimeChild(ctx, socket, cfg.pods, cfg.containers, 0)
	if err != nil {
		return err
	}
	defer server.close()
	peer, err := startChild(ctx, "peer", "-socket", socket)
	if err != nil {
		return err
	}
	defer peer.close()
	kubelet, err := startKubelet(ctx)
	if err != nil {
		return err
	}
	sources, err := startChild(ctx, evidenceName, "-socket", socket, "-kubelet", "http://"+kubelet+"/healthz")
	if err != nil {
		return err
	}
	defer sources.close()
	time.Sleep(10 * time.Second) // they have found the runtime and its shims

	pid := sources.cmd.Process.Pid
	before := cpuOf(pid)
	r, err := peer.round(order{Relists: int(window.Seconds()), Period: time.Second})
	if err != nil {
		return err
	}
	own, others := ms(cpuOf(pid)-before)/window.Seconds(), ms(r.CPU)/window.Seconds()
	goal := ""
	if cfg.pods == 110 {
		goal = fmt.Sprintf("<= %d: met", evidenceGoal)
		if own > evidenceGoal {
			goal = fmt.Sprintf("<= %d: NOT MET", evidenceGoal)
		}
	}
	found, err := sources.round(order{})
	if err != nil {
		return err
	}
	fmt.Printf("%6d %7d %15.2f %13.2f %8.2f %s\n", cfg.pods, found.Shims, own, others, own/others, goal)
	return nil
}

// startShims starts processes that look like shims and wait, children of this
// one, from which the runtime descends as well. end ends them.
func startShims(ctx context.Context, dir string, n int) (end func(), err error) {
	var all []*exec.Cmd
	end = func() {
		for _, c := range all {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	}
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		return end, err
	}
	shim := filepath.Join(dir, "containerd-shim-runc-v2") // a process is called what it was started as
	if err := os.Symlink(sleep, shim); err != nil {
		return end, err
	}
	for range n {
		c := exec.CommandContext(ctx, shim, "86400")
		c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := c.Start(); err != nil {
			return end, err
		}
		all = append(all, c)
	}
	return end, nil
}

// startKubelet serves a healthz until ctx ends and returns its address.
func startKubelet(ctx context.Context) (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	server := &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }),
		ReadHeaderTimeout: time.Minute,
	}
	go func() { _ = server.Serve(l) }()
	context.AfterFunc(ctx, func() { _ = server.Close() })
	return l.Addr().String(), nil
}

// gatherEvidence is the subject: the sources that internal/daemon runs, at the
// paces that are their own and the fresh dial's default.
func gatherEvidence(socket, kubeletURL string, in io.Reader, out *json.Encoder) error {
	path := func() string { return socket }
	dialer := evidence.NewDialer(evidence.DialOptions{Path: path, Period: 2 * time.Second, Timeout: time.Second})
	sources, err := evidence.NewRegistry(evidence.Options{
		ProcFS: "/proc", SysFS: "/sys", Path: path,
		HeldPeer: func() int { pid, _ := dialer.Peer(); return pid }, NewestPeer: dialer.Peer, Moved: dialer.Moved,
		DockerSocket: evidence.DefaultDockerSocket, BehindDocker: func() bool { return false },
		Kubelet: evidence.KubeletOptions{HealthzURL: kubeletURL},
	})
	if err != nil {
		return err
	}
	go func() { _ = dialer.Run(context.Background()) }()
	for _, source := range sources.All {
		go func() { _ = source.Run(context.Background()) }()
	}
	if err := out.Encode(reply{}); err != nil {
		return err
	}
	for dec := json.NewDecoder(in); ; {
		var o order
		if err := dec.Decode(&o); err != nil {
			return nil // the parent is gone
		}
		var answer reply
		if v := sources.Facts().Children; v != nil {
			answer.Round.Shims = v.Shims
		}
		if err := out.Encode(answer); err != nil {
			return err
		}
	}
}
