//go:build e2e

package lab

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Node is what looks like a whole node from inside: mount, pid and network namespaces with their own /run, /var/lib
// and /var/log and a loopback interface, in which a runtime, a kubelet and a plegd find nothing but each other. The
// kernel settings that a kubelet writes are covered, so the machine keeps its own.
type Node struct {
	t  testing.TB
	ns *Namespace
}

// NewNode starts an empty node, which ends with the test.
func NewNode(t testing.TB) *Node {
	t.Helper()
	RequireRoot(t)
	return &Node{t: t, ns: NewNamespace(t, NodeNamespaces())}
}

// NodeOf returns a node of existing namespaces.
func NodeOf(t testing.TB, ns *Namespace) *Node { return &Node{t: t, ns: ns} }

// NodeNamespaces returns what a node's namespaces need besides some file systems in memory.
func NodeNamespaces(tmpfs ...string) NamespaceConfig {
	return NamespaceConfig{
		Tmpfs:    append([]string{"/var/lib", "/var/log"}, tmpfs...),
		Loopback: true,
		Shared:   true,
		// What a kubelet sets when it starts.
		Covers: []string{"/proc/sys/vm/overcommit_memory", "/proc/sys/kernel/panic", "/proc/sys/kernel/panic_on_oops"},
	}
}

// NodeProcess is a process on a node.
type NodeProcess struct {
	// Pid is its process id outside the node.
	Pid int
	Process
}

// Start starts a program on the node; its output is appended to a file.
func (n *Node) Start(log string, argv ...string) *NodeProcess {
	n.t.Helper()
	return n.StartWith(cleanEnv(), log, argv...)
}

// StartWith starts a program with a certain environment.
func (n *Node) StartWith(env []string, log string, argv ...string) *NodeProcess {
	n.t.Helper()
	p := &NodeProcess{Process: Process{TB: n.t, Namespace: n.ns, Name: argv[0], Argv: argv, Env: env, Log: log}}
	p.Launch()
	p.Pid = p.pid
	return p
}

// Run runs a program on the node to its end and returns its output, with that of stderr, and its exit status.
func (n *Node) Run(env []string, argv ...string) (output string, status int) {
	n.t.Helper()
	log := filepath.Join(n.t.TempDir(), "output")
	_, end, err := n.ns.Launch(NamespaceCommand{Argv: argv, Env: env, Log: log})
	if err != nil {
		n.t.Fatalf("run %s: %v", argv[0], err)
	}
	select {
	case <-end.Done:
	case <-time.After(runLimit):
		n.t.Fatalf("%v has not ended within %s\n%s", argv, runLimit, Tail(log, 20))
	}
	b, err := os.ReadFile(log)
	Must(n.t, err)
	return string(b), end.Status.ExitStatus()
}

// Path returns where a file of the node is for this process.
func (n *Node) Path(path string) string {
	return filepath.Join("/proc", strconv.Itoa(n.ns.Pid()), "root", path)
}

// Listen listens on a TCP address of the node's own network for this process.
func (n *Node) Listen(address string) net.Listener {
	n.t.Helper()
	var l net.Listener
	err := n.InNetwork(func() (err error) {
		l, err = net.Listen("tcp", address)
		return err
	})
	if err != nil {
		n.t.Fatalf("lab: listen on %s of the node: %v", address, err)
	}
	return l
}

// Client returns an HTTP client whose connections are made in the node's own
// network. A request may take so long; 0: any time.
func (n *Node) Client(timeout time.Duration) *http.Client {
	transport := TransportIn(n.ns.Pid())
	n.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Timeout: timeout, Transport: transport}
}

// TransportIn makes its connections in the network of a process.
func TransportIn(pid int) *http.Transport {
	return &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // a node of the tests' own
		DialContext: func(_ context.Context, network, address string) (conn net.Conn, err error) {
			inner := InNetwork(pid, func() error {
				conn, err = net.DialTimeout(network, address, DialLimit)
				return err
			})
			return conn, inner
		},
	}
}

const (
	// runLimit is how long a program may take that Run runs.
	runLimit = 5 * time.Minute
	// DialLimit is how long a connection on a node may take.
	DialLimit = 2 * time.Second
)

// InNetwork calls f on a thread that is in the node's network.
func (n *Node) InNetwork(f func() error) error { return InNetwork(n.ns.Pid(), f) }

// InNetwork calls f on a thread that is in the network of a process.
func InNetwork(pid int, f func() error) error {
	done := make(chan error, 1)
	go func() {
		// The thread must go back to its own network and must not end: the lab's
		// processes are killed with the thread that started them.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		done <- inNetworkOf(pid, f)
	}()
	return <-done
}

func inNetworkOf(pid int, f func() error) error {
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer Close(own)
	other, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return err
	}
	defer Close(other)
	if err := unix.Setns(int(other.Fd()), unix.CLONE_NEWNET); err != nil {
		return err
	}
	defer func() {
		if err := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); err != nil {
			panic(fmt.Sprintf("lab: a thread cannot leave a node's network: %v", err))
		}
	}()
	return f()
}

// Terminate ends the process by SIGTERM and returns its exit status.
func (p *NodeProcess) Terminate(limit time.Duration) (status int) {
	p.TB.Helper()
	p.Finish(syscall.SIGTERM, limit)
	return p.End.Status.ExitStatus()
}
