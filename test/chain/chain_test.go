//go:build e2e

package chain

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	walk "github.com/plegd/plegd/internal/chain"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/test/lab"
	"github.com/plegd/plegd/test/lab/waiting"
)

// want is the expected end of a chain: the pids in it, the kind and state of its last
// link, and part of that link's name and of the reason why the rest is unknown.
type want struct {
	pids          []int
	kind          facts.LinkKind // "": a process
	state         facts.LinkState
	unknown, name string
}

func (w want) check(t *testing.T, c facts.Chain) {
	t.Helper()
	var pids []int
	for _, l := range c.Links {
		if l.PID != 0 {
			pids = append(pids, l.PID)
		}
	}
	if w.kind == "" {
		w.kind = facts.KindProcess
	}
	last := facts.Link{}
	if n := len(c.Links); n > 0 {
		last = c.Links[n-1]
	}
	if !slices.Equal(pids, w.pids) || last.Kind != w.kind || last.State != w.state || !strings.Contains(last.Name, w.name) ||
		w.unknown == "" && c.Unknown != "" || !strings.Contains(c.Unknown, w.unknown) {
		t.Errorf("got %d %s %q %s %q, want %+v", pids, last.Kind, last.Name, last.State, c.Unknown, w)
	}
}

const (
	sleeps   = `print "ready\n"; sleep 1000`
	holds    = `open(A,'>>',$ARGV[0]); flock(A,LOCK_EX); ` + sleeps
	waitsFor = `open(A,'>>',$ARGV[0]); print "ready\n"; flock(A,LOCK_EX); sleep 1000`
	// both takes the first file's lock and then waits for the second's.
	both     = `open(A,'>>',$ARGV[%d]); flock(A,LOCK_EX); print "ready\n"; $_=<STDIN>; open(B,'>>',$ARGV[%d]); flock(B,LOCK_EX); sleep 1000`
	record   = `open(A,'+>>',$ARGV[0]); my $l=pack("s s x4 q q i x4",F_WRLCK,0,0,0,0); `
	listens  = `socket(S,AF_UNIX,SOCK_STREAM,0); bind(S,sockaddr_un($ARGV[0])) or die; listen(S,5); print "ready\n"; `
	connects = `socket(S,AF_UNIX,SOCK_STREAM,0); connect(S,sockaddr_un($ARGV[0])) or die; `
	// The port of the TCP server is the third argument.
	listensTCP  = `socket(S,AF_INET,SOCK_STREAM,0); bind(S,sockaddr_in($ARGV[2],INADDR_LOOPBACK)) or die; listen(S,5); print "ready\n"; `
	connectsTCP = `socket(S,AF_INET,SOCK_STREAM,0); connect(S,sockaddr_in($ARGV[2],INADDR_LOOPBACK)) or die; `
	// The server never answers a datagram, and leaves it unread.
	listensUDP  = `socket(S,AF_INET,SOCK_DGRAM,0); bind(S,sockaddr_in($ARGV[2],INADDR_LOOPBACK)) or die; print "ready\n"; `
	connectsUDP = `socket(S,AF_INET,SOCK_DGRAM,0); connect(S,sockaddr_in($ARGV[2],INADDR_LOOPBACK)) or die; `
	lease       = `open(A,'<',$ARGV[0]) or die; fcntl(A,1024,F_RDLCK) or die; $SIG{IO}='IGNORE'; ` + sleeps
	answers     = `accept(C,S); sysread(C,$b,100); sleep 1000`
	asks        = `print "ready\n"; syswrite(S,"a question"); sysread(S,$b,1)`
)

// waits are processes that wait for each other. They start in their order, with a path
// that is free, another one, and a TCP port as arguments; "go MODE" is this program. The
// chain from the last one leads to that at place ends, which is then stopped.
var waits = []struct {
	name      string
	processes []string
	ends      int
	through   []int           // between them, by place
	state     facts.LinkState // before the stop; "": asleep
	fifo      bool            // the first path is one
	file      bool            // the first path is that of a program
	unknown   string          // nothing is found, for this reason
}{
	{name: "tracer", processes: []string{sleeps, "go trace"}, ends: 1},
	{name: "FUSE server that does not read", processes: []string{"go fuse", `print "ready\n"; open(A,'<',"$ARGV[0]/file"); sleep 1000`}},
	{name: "FUSE server that waits for the next request", processes: []string{"go fusereads", `print "ready\n"; open(A,'<',"$ARGV[0]/file"); sleep 1000`}},
	{name: "fanotify agent", processes: []string{"go fanotify", `print "ready\n"; open(A,'<',"$ARGV[0]/file"); sleep 1000`}},
	{name: "socket, no answer", processes: []string{listens + answers, connects + asks}},
	{name: "socket, not read", processes: []string{listens + `accept(C,S); sleep 1000`, connects + `print "ready\n"; while (1) { syswrite(S,"x" x 4096) }`}, state: facts.LinkUnread},
	{name: "socket, not accepted", processes: []string{listens + `sleep 1000`, connects + asks}},
	{name: "socket, not accepted beside another one", processes: []string{strings.ReplaceAll(listens, "[0]", "[1]") + `sleep 1000`, strings.ReplaceAll(connects, "[0]", "[1]") + sleeps,
		listens + `sleep 1000`, connects + asks}, ends: 2},
	{name: "socket, full queue", processes: []string{strings.Replace(listens, "S,5", "S,0", 1) + `sleep 1000`, `print "ready\n"; while (1) { ` + strings.ReplaceAll(connects, "(S,", "($s[$i],") + `$i++ }`}},
	{name: "TCP, no answer", processes: []string{listensTCP + answers, connectsTCP + asks}},
	{name: "TCP, not accepted", processes: []string{listensTCP + `sleep 1000`, connectsTCP + asks}},
	{name: "a peer with many descriptors", processes: []string{`open($f[$_],'<','/dev/null') or die for 1..8000; ` + listens + answers, connects + asks}},
	{name: "UDP, not read", processes: []string{listensUDP + `sleep 1000`, connectsUDP + asks}},
	{name: "a datagram socket that is full", processes: []string{`socket(S,AF_UNIX,SOCK_DGRAM,0); bind(S,sockaddr_un($ARGV[0])) or die; ` + sleeps,
		strings.Replace(connects, "SOCK_STREAM", "SOCK_DGRAM", 1) + `print "ready\n"; while (1) { syswrite(S,"x") }`}, state: facts.LinkUnread},
	{name: "a full datagram socket that is not connected to", processes: []string{`socket(S,AF_UNIX,SOCK_DGRAM,0); bind(S,sockaddr_un($ARGV[0])) or die; ` + sleeps,
		`socket(S,AF_UNIX,SOCK_DGRAM,0); print "ready\n"; while (1) { send(S,"x",0,sockaddr_un($ARGV[0])) }`}},
	{name: "a copy to a FIFO that nobody reads", processes: []string{`open(A,'+<',$ARGV[0]); ` + sleeps,
		fmt.Sprintf(`pipe(R,W); open(A,'>',$ARGV[0]) or die; print "ready\n"; while (1) { syswrite(W,"x"); syscall(%d,fileno(R),0,fileno(A),0,1,0) }`, unix.SYS_SPLICE)}, fifo: true},
	{name: "a copy from a FIFO that nobody writes", processes: []string{`open(A,'+<',$ARGV[0]); ` + sleeps,
		fmt.Sprintf(`pipe(R,W); open(A,'<',$ARGV[0]) or die; print "ready\n"; syscall(%d,fileno(A),0,fileno(W),0,1,0)`, unix.SYS_SPLICE)}, fifo: true},
	{name: "a file sent to a TCP server that does not read", processes: []string{listensTCP + `accept(C,S); sleep 1000`, connectsTCP +
		fmt.Sprintf(`open(A,'<',$^X); print "ready\n"; while (1) { sysseek(A,0,0); syscall(%d,fileno(S),fileno(A),0,1<<20) }`, unix.SYS_SENDFILE)}, state: facts.LinkUnread},
	{name: "an eventfd", processes: []string{fmt.Sprintf(`my $e=syscall(%d,0,0); open(A,'>',$ARGV[0]); print A "$$ $e"; close(A); `, unix.SYS_EVENTFD2) + sleeps,
		fmt.Sprintf(`open(A,'<',$ARGV[0]); my ($p,$e)=split(" ",<A>); $p=syscall(%d,$p+0,0); $e=syscall(%d,$p,$e+0,0); open(E,"<&=$e") or die; print "ready\n"; sysread(E,$b,8)`,
			unix.SYS_PIDFD_OPEN, unix.SYS_PIDFD_GETFD)}},
	{name: "a semaphore", processes: []string{`my $s=semget(0,1,0600); print "ready\n"; semop($s,pack("s3",0,-1,0))`}},
	{name: "a terminal that nobody reads", processes: []string{"go terminal", `print "ready\n"; open(A,'>',readlink($ARGV[0])) or die; while (1) { syswrite(A,"x" x 4096) }`}},
	{name: "a terminal by another name", processes: []string{"go terminal", fmt.Sprintf(`my ($t,$n,$none)=(readlink($ARGV[0]),$ARGV[1],"none"); open(N,'>',$n); syscall(%d,0x20000)==0 or die;
		my $root="/"; syscall(%[2]d,$none,$root,0,%d,0)==0 or die; syscall(%[2]d,$t,$n,0,%[4]d,0)==0 or die; print "ready\n"; open(A,'>',$n) or die; while (1) { syswrite(A,"x" x 4096) }`,
		unix.SYS_UNSHARE, unix.SYS_MOUNT, unix.MS_REC|unix.MS_PRIVATE, unix.MS_BIND)}},
	{name: "lease of a file", processes: []string{lease, `print "ready\n"; open(A,'>',$ARGV[0]); sleep 1000`}, file: true},
	{name: polledLease, processes: []string{strings.ReplaceAll(lease, "F_RDLCK", "F_WRLCK"), `print "ready\n"; exec $ARGV[0]`}, file: true},
	{name: "FIFO, nobody writes", processes: []string{`open(A,'+<',$ARGV[0]); ` + sleeps, `print "ready\n"; open(A,'<',$ARGV[0]); sysread(A,$b,1)`}, fifo: true},
	{name: "FIFO, nobody reads", processes: []string{`open(A,'+<',$ARGV[0]); ` + sleeps, `print "ready\n"; open(A,'>',$ARGV[0]); while (1) { syswrite(A,"x" x 4096) }`}, fifo: true},
	{name: "flock", processes: []string{holds, waitsFor}},
	{name: "lock of a process", processes: []string{record + `fcntl(A,F_SETLK,$l) or die; ` + sleeps, record + `print "ready\n"; fcntl(A,F_SETLKW,$l); sleep 1000`}},
	{name: "lock of an open file", processes: []string{record + `fcntl(A,37,$l) or die; ` + sleeps, record + `print "ready\n"; fcntl(A,38,$l); sleep 1000`}},
	{name: "a lock that is asked for again and again", processes: []string{holds, `open(A,'>>',$ARGV[0]); print "ready\n"; sleep 1 until flock(A,LOCK_EX|LOCK_NB)`}},
	{name: "a record's lock that is asked for again and again", processes: []string{record + `fcntl(A,F_SETLK,$l) or die; ` + sleeps, record + `print "ready\n"; sleep 1 until fcntl(A,F_SETLK,$l)`}},
	{name: "the first process of a container", processes: []string{
		`mkdir $ARGV[1]; mkdir "$ARGV[1]/f00d"; system("mkfifo","$ARGV[1]/f00d/exec.fifo"); sysopen(A,"$ARGV[1]/f00d/exec.fifo",010000000) or die; ` + sleeps,
		`print "ready\n"; exec $^X,"-e",'open(A,"<",$ARGV[0])',"$ARGV[1]/f00d/exec.fifo","start","f00d"`}},
	{name: "a lock, and a FIFO behind it", processes: []string{`open(A,'+<',$ARGV[0]); ` + sleeps,
		`open(A,'>>',$ARGV[1]); flock(A,LOCK_EX); print "ready\n"; open(B,'<',$ARGV[0]); sysread(B,$b,1)`, strings.ReplaceAll(waitsFor, "[0]", "[1]")}, through: []int{1}, fifo: true},
	{name: "one thread of several waits", processes: []string{holds, "go flocks 0"}},
	{name: "two threads wait for the same", processes: []string{holds, "go flocks 0 0"}},
	{name: "threads wait for different ones", processes: []string{holds, strings.ReplaceAll(holds, "[0]", "[1]"), "go flocks 0 1"}, unknown: "2 different things"},
	{name: "threads wait for each other", processes: []string{"go deadlock"}},
	{name: "the peer of a thread does not read", processes: []string{listens + `accept(C,S); sleep 1000`, "go dial"}, state: facts.LinkUnread},
}

// polledLease is a wait in which the kernel lets the thread run in each tick.
const polledLease = "lease of a file to be executed"

func TestWaits(t *testing.T) {
	for _, tt := range waits {
		t.Run(tt.name, func(t *testing.T) {
			paths := []string{socketPath(t), socketPath(t), strconv.Itoa(freePort(t))}
			switch {
			case tt.fifo:
				lab.Must(t, unix.Mkfifo(paths[0], 0o600))
			case tt.file:
				run(t, "cp", "/bin/true", paths[0])
			case strings.HasPrefix(tt.processes[0], "go f"): // a directory
				lab.Must(t, os.Mkdir(paths[0], 0o755))
				t.Cleanup(func() { _ = unix.Unmount(paths[0], unix.MNT_DETACH) })
				write(t, paths[0]+"/file", "")
			}
			var all []*waiting.Process
			for _, text := range tt.processes {
				args := paths
				if tt.name == "tracer" && len(all) > 0 {
					args = []string{strconv.Itoa(all[0].PID)}
				}
				all = append(all, begin(t, text, args))
			}
			first := all[len(all)-1]
			if tt.name != polledLease {
				first.Asleep(t)
			}
			if tt.name == "tracer" {
				first = all[0]
			}
			all[0].EndFirst(t)
			w := want{pids: []int{first.PID}, state: facts.LinkAsleep}
			for _, i := range append(tt.through, tt.ends) {
				if all[i] != first {
					w.pids = append(w.pids, all[i].Asleep(t).PID)
				}
			}
			if tt.state != "" {
				w.state = tt.state
			}
			if tt.unknown != "" {
				w = want{pids: w.pids[:1], state: facts.LinkUnknown, unknown: tt.unknown}
			}
			c := walked(t, first.PID)
			if strings.Contains(c.Unknown, "listeners") {
				t.Skip("SKIPPED: connections wait at another listener of this machine")
			}
			w.check(t, c)
			few := unprivileged(t, first.PID)
			if n := len(few.Links); few.Unknown == "" && (n != len(c.Links) || few.Links[n-1].State != c.Links[n-1].State) {
				t.Error("without privilege another chain is found")
			}
			if tt.unknown == "" {
				all[tt.ends].Stop(t)
				w.state = facts.LinkStopped
				w.check(t, walked(t, first.PID))
			}
		})
	}
}

// begin starts a process of the table.
func begin(t *testing.T, text string, paths []string) *waiting.Process {
	t.Helper()
	mode, ok := strings.CutPrefix(text, "go ")
	if !ok {
		return waiting.Perl(t, text, paths...)
	}
	mode, places, _ := strings.Cut(mode, " ")
	args := paths
	if places != "" {
		args = nil
		for _, place := range strings.Fields(places) {
			i, _ := strconv.Atoi(place)
			args = append(args, paths[i])
		}
	}
	return waiting.Program(t, mode, args...)
}

// TestNetworks: the other end of a connection is in another network namespace, or behind an address that is translated.
func TestNetworks(t *testing.T) {
	const serves = `socket(S,AF_INET,SOCK_STREAM,0); bind(S,sockaddr_in(8080,INADDR_ANY)) or die; listen(S,5); print "ready\n"; `
	const dials = `socket(S,AF_INET,SOCK_STREAM,0); connect(S,sockaddr_in($ARGV[2],inet_aton($ARGV[1]))) or die; `
	const network = `ip addr add 198.18.78.1/24 dev plegd-chain0; ip link set plegd-chain0 up; exec nsenter "$0" sh -ec "
		ip addr add 198.18.78.2/24 dev plegd-chain1; ip link set plegd-chain1 up; ip link set lo up; ip route add 10.96.77.1 dev lo src 198.18.78.2
		iptables -t nat -A OUTPUT -d 10.96.77.1 -p tcp --dport 443 -j DNAT --to-destination 198.18.78.2:8080"`
	for name, tt := range map[string]struct {
		serves, asks  string
		address, port string
		shares        bool // the client is in the namespace of the server
	}{
		"TCP":                {serves: serves + answers, asks: dials + asks, address: "198.18.78.2", port: "8080"},
		"TCP, not accepted":  {serves: serves + "sleep 1000", asks: dials + asks, address: "198.18.78.2", port: "8080"},
		"a service":          {serves: serves + answers, asks: dials + asks, address: "10.96.77.1", port: "443", shares: true},
		"unix, not accepted": {serves: listens + "sleep 1000", asks: connects + asks},
	} {
		t.Run(name, func(t *testing.T) {
			path := socketPath(t)
			server := waiting.Start(t, exec.Command("unshare", "--net", "perl", "-MSocket", "-e", "$|=1; "+tt.serves, path))
			enter := fmt.Sprintf("--net=/proc/%d/ns/net", server.PID)
			run(t, "ip", "link", "add", "plegd-chain0", "type", "veth", "peer", "name", "plegd-chain1", "netns", strconv.Itoa(server.PID))
			defer run(t, "ip", "link", "del", "plegd-chain0")
			run(t, "sh", "-ec", network, enter)
			argv := []string{"perl", "-MSocket", "-e", "$|=1; " + tt.asks, path, tt.address, tt.port}
			if tt.shares {
				argv = append([]string{"nsenter", enter}, argv...)
			}
			client := waiting.Start(t, exec.Command(argv[0], argv[1:]...))
			client.Asleep(t)
			server.Asleep(t).Stop(t)
			want{pids: []int{client.PID, server.PID}, state: facts.LinkStopped}.check(t, walked(t, client.PID))
		})
	}
}

func TestLoop(t *testing.T) {
	one, two := socketPath(t), socketPath(t)
	a, b := waiting.Perl(t, fmt.Sprintf(both, 0, 1), one, two), waiting.Perl(t, fmt.Sprintf(both, 1, 0), one, two)
	fmt.Fprintln(a.In)
	fmt.Fprintln(b.In)
	a.Asleep(t)
	b.Asleep(t)
	want{pids: []int{a.PID, b.PID}, state: facts.LinkLoop}.check(t, walked(t, a.PID))
}

// TestChildren: a process waits for a child, also for one that may not begin its program,
// and one that has ended is its parent's.
func TestChildren(t *testing.T) {
	parent := waiting.Perl(t, `if (!($p=fork)) { exec "sleep","1000" } print "ready\n"; waitpid($p,0)`).Asleep(t)
	child := parent.Child(t).PID
	want{pids: []int{parent.PID, child}, state: facts.LinkAsleep, name: "sleep"}.check(t, walked(t, parent.PID))
	_ = unix.Kill(child, unix.SIGKILL)

	parent = waiting.Perl(t, `if (!($p=fork)) { exit } `+sleeps)
	child = parent.Child(t).PID
	waiting.Eventually(t, func() bool { return strings.HasPrefix(lab.State(child), "Z") })
	want{pids: []int{child, parent.Asleep(t).PID}, state: facts.LinkAsleep}.check(t, walked(t, child))

	dir := filepath.Dir(socketPath(t))
	run(t, "cp", "/bin/true", dir+"/true")
	agent := waiting.Program(t, "fanotify", dir)
	parent = waiting.Program(t, "vfork", dir+"/true").Asleep(t)
	agent.EndFirst(t)
	agent.Stop(t)
	want{pids: []int{parent.PID, parent.Child(t).PID, agent.PID}, state: facts.LinkStopped}.check(t, walked(t, parent.PID))
}

// TestPipeline: a shell waits for all parts of a pipeline, and the last of them to end is the one that
// waits for none of the others; of two that wait for nothing, none is named. A reader that is stopped is
// named, and not its child.
func TestPipeline(t *testing.T) {
	for _, tt := range []struct{ script, last, unknown string }{
		{script: "echo ready; { sleep 1001; true; } | cat", last: "sleep"},
		{script: "echo ready; cat /dev/zero | sleep 1002", last: "sleep"},
		{script: `echo ready; mkfifo "$0/f"; perl -e 'fork or exec "sleep", "1005"; kill "STOP", $$' <"$0/f" & exec cat /dev/zero >"$0/f"`, last: "perl"},
		{script: "echo ready; sleep 1003 | sleep 1004", last: "sh", unknown: "cannot be seen"},
	} {
		cmd := exec.Command("sh", "-c", tt.script, t.TempDir())
		cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
		shell := waiting.Start(t, cmd)
		t.Cleanup(func() { _ = unix.Kill(-shell.PID, unix.SIGKILL) })              // its parts too
		lab.Eventually(t, 30*time.Second, "the chain is as wanted", func() error { // the parts take a moment to begin
			c := walked(t, shell.PID)
			last := c.Links[len(c.Links)-1]
			if last.Name != tt.last || tt.unknown == "" && c.Unknown != "" || !strings.Contains(c.Unknown, tt.unknown) {
				return fmt.Errorf("%q: got %q, %q, want %q, %q", tt.script, last.Name, c.Unknown, tt.last, tt.unknown)
			}
			return nil
		})
	}
}

// TestPipeOfAHelper: a helper of many threads waits for the pipe that somebody else keeps open; one
// whose pipe the runtime itself has waits for nobody else.
func TestPipeOfAHelper(t *testing.T) {
	for _, own := range []bool{false, true} {
		r, w, err := os.Pipe()
		lab.Must(t, err)
		t.Cleanup(func() { _ = w.Close() })
		reader := exec.Command("/proc/self/exe")
		reader.Env = append(os.Environ(), waiting.ModeEnv+"=pipe")
		reader.ExtraFiles = []*os.File{r}
		helper := waiting.Start(t, reader)
		lab.Must(t, r.Close())
		expected := want{pids: []int{helper.PID}, kind: facts.KindHelper, state: facts.LinkAsleep}
		if !own {
			writer := exec.Command("perl", "-e", `$|=1; print "ready\n"; sleep 1000`)
			writer.ExtraFiles = []*os.File{w}
			expected = want{pids: []int{helper.PID, waiting.Start(t, writer).PID}, kind: facts.KindHelper, state: facts.LinkAsleep}
			lab.Must(t, w.Close())
		}
		helper.Asleep(t)
		e := walk.New(proc.NewTable("/proc"), "/sys", nil)
		expected.check(t, e.Explore(t.Context(), walk.Symptom{Symptom: facts.Symptom{Process: helper.PID}, RuntimePID: os.Getpid()}))
	}
}

// TestGreedyClient: of a server without a free descriptor, the client that has half of them is named;
// none is where two have a third each, or where descriptors are free.
func TestGreedyClient(t *testing.T) {
	const accepts = `socket(S,AF_UNIX,SOCK_STREAM,0); bind(S,sockaddr_un($ARGV[0])) or die; listen(S,50); print "ready\n"; for (1..20) { accept($c[$_],S) } sleep 1000`
	// What the client waits for, here for its child, is not why it keeps its connections.
	const leaks = `for (1..%d) { socket($s[$_],AF_UNIX,SOCK_STREAM,0); connect($s[$_],sockaddr_un($ARGV[0])) or die } ` +
		`pipe(R,W); my $child = fork; if (!$child) { close $_ for W,STDOUT,STDERR; sysread(R,$x,1); exit } print "ready\n"; waitpid($child,0)`
	for name, tt := range map[string]struct {
		clients []int
		limit   int
		named   bool
	}{
		"one client": {[]int{17, 3}, 24, true}, "two clients": {[]int{10, 10}, 24, false}, "descriptors are free": {[]int{17, 3}, 100, false},
	} {
		t.Run(name, func(t *testing.T) {
			path := socketPath(t)
			server := waiting.Perl(t, accepts, path)
			var clients []*waiting.Process
			for _, n := range tt.clients {
				clients = append(clients, waiting.Perl(t, fmt.Sprintf(leaks, n), path))
			}
			server.Asleep(t)
			w := walk.New(proc.NewTable("/proc"), "/sys", nil)
			c := w.Explore(t.Context(), walk.Symptom{
				Symptom: facts.Symptom{Process: server.PID},
				Locked:  &facts.Process{PID: server.PID, Alive: true, OpenFDs: 24, MaxFDs: tt.limit},
			})
			culprit := server.PID
			if tt.named {
				culprit = clients[0].PID
			}
			if c.Culprit() == nil || c.Culprit().PID != culprit {
				t.Errorf("want pid %d: %s", culprit, text(c))
			}
		})
	}
}

// TestThreadsOfOneMount: of threads that wait for one mount in different kernel functions, the mount
// and its server are named once.
func TestThreadsOfOneMount(t *testing.T) {
	dir := socketPath(t)
	lab.Must(t, os.Mkdir(dir, 0o755))
	server := waiting.Program(t, "fuse", dir)
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	reader := waiting.Program(t, "opens", dir)
	server.EndFirst(t)
	reader.Asleep(t)
	want{pids: []int{reader.PID, server.PID}, state: facts.LinkAsleep}.check(t, walked(t, reader.PID))
}

// TestYoungChild: of a script that runs one short program after the other, the script is named.
func TestYoungChild(t *testing.T) {
	script := waiting.Perl(t, `print "ready\n"; while (1) { system("sleep","1") }`)
	began := time.Now()
	waiting.Eventually(t, func() bool {
		child := script.Child(t).PID
		p, err := proc.ReadStat("/proc", child)
		return err == nil && proc.StartedAt(time.Now(), proc.Uptime(), p.Start).After(began)
	})
	w := walk.New(proc.NewTable("/proc"), "/sys", nil)
	c := w.Explore(t.Context(), walk.Symptom{Symptom: facts.Symptom{Process: script.PID, Since: began}})
	if c.Culprit() == nil || c.Culprit().PID != script.PID || c.Unknown != "" {
		t.Error(text(c))
	}
}

// TestOpens: a thread that opens a FIFO waits for a process to open the other end, and nobody is
// named for it; also of a process of several threads.
func TestOpens(t *testing.T) {
	path := socketPath(t)
	lab.Must(t, unix.Mkfifo(path, 0o600))
	for _, p := range []*waiting.Process{
		waiting.Perl(t, `print "ready\n"; open(A,'<',$ARGV[0])`, path),
		waiting.Program(t, "open", path),
	} {
		p.Asleep(t)
		c := walked(t, p.PID)
		if len(c.Links) != 1 || c.Links[0].State != facts.LinkPeer || !strings.Contains(c.Links[0].Evidence, "opens a FIFO to read") {
			t.Errorf("%+v", c)
		}
	}
}

// TestSeccomp: a system call waits for the supervisor of its filter.
func TestSeccomp(t *testing.T) {
	supervisor := waiting.Program(t, "supervise")
	child := supervisor.Child(t)
	child.Asleep(t)
	want{pids: []int{child.PID, supervisor.PID}, state: facts.LinkAsleep}.check(t, walked(t, child.PID))
}

// TestFault: a thread waits for a page of its memory, which its child is to supply.
func TestFault(t *testing.T) {
	faulting := waiting.Program(t, "fault")
	supplier := faulting.Child(t)
	waiting.Eventually(t, func() bool { return len(walked(t, faulting.PID).Links) > 1 })
	want{pids: []int{faulting.PID, supplier.PID}, state: facts.LinkAsleep}.check(t, walked(t, faulting.PID))
}

func TestHostile(t *testing.T) {
	p := waiting.Perl(t, `open(C,'>',"/proc/self/comm"); print C "a\x1b[31m)\nS 1"; close C; `+sleeps)
	p.Stop(t)
	c := walked(t, p.PID)
	if len(c.Links) != 1 || strings.ContainsAny(c.Links[0].Name, "\x1b\n") || c.Links[0].State != facts.LinkStopped {
		t.Errorf("%+v", c)
	}
	if c := walked(t, 1<<22-1); c.Unknown == "" || len(c.Links) != 0 {
		t.Error("a process that is not there")
	}
}

func write(t *testing.T, file, value string) {
	t.Helper()
	lab.Must(t, os.WriteFile(file, []byte(value), 0o644))
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	b, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v: %s", name, args, err, b)
	}
	return strings.TrimSpace(string(b))
}
