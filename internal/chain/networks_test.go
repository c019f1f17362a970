package chain

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/evidencetest"
	"github.com/plegd/plegd/test/must"
)

const socketLines = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"

// socketLine is a line of net/tcp.
func socketLine(local, remote, state string, unread, inode int) string {
	return fmt.Sprintf("   0: %s %s %s 00000000:%08X 00:00000000 00000000 0 0 %d 1 0 20 4 30 10 -1\n", local, remote, state, unread, inode)
}

// TestOtherNetworks: the other end of a connection is found behind a translated address and in another network namespace,
// accepted or not, and is named only where no other connection may have it. Else it is not said to be on another node.
func TestOtherNetworks(t *testing.T) {
	const client, service, server, any4, none = "0A00000A:C004", "0100600A:1F90", "0A00000A:20FB", "00000000:1F90", "00000000:0000"
	const mappedClient, mapped = "0000000000000000FFFF00000A00000A:C004", "0000000000000000FFFF00000100600A:1F90"
	const client6, service6, server6 = "B80D0120000000000000000001000000:C004", "B80D0120000000000000000002000000:1F90", "B80D0120000000000000000001000000:20FB"
	const any6, none6 = "00000000000000000000000000000000:1F90", "00000000000000000000000000000000:0000"
	asks := socketLine(client, service, "01", 0, 24)
	asks6 := socketLine(client6, service6, "01", 0, 24)
	unacknowledged := strings.Replace(asks, " 00000000:", " 00000010:", 1)
	translated := socketLine(server, client, "01", 5, 34)
	for name, tt := range map[string]struct {
		own, own6, other, other6 string // the sockets of the client's network namespace, and of another one
		unreadable               bool   // the second
		next                     int
		text                     string
	}{
		"behind a service's address":          {own: asks + translated, next: 11, text: "reads from socket 10.96.0.1:8080"},
		"behind one of IPv6":                  {own6: asks6 + socketLine(server6, client6, "01", 5, 34), next: 11, text: "reads from"},
		"by IPv6, from an IPv4 address":       {own: asks, own6: socketLine("0000000000000000FFFF00000A00000A:20FB", mappedClient, "01", 5, 34), next: 11},
		"in another namespace":                {own: asks, other: socketLine(service, client, "01", 5, 34), next: 11},
		"of IPv6":                             {own6: asks6, other6: socketLine(service6, client6, "01", 5, 34), next: 11},
		"not accepted":                        {own: asks, other: socketLine(service, client, "01", 5, 0) + socketLine(any4, none, "0A", 1, 34), next: 11, text: "is not accepted"},
		"not accepted, the queue full":        {own: asks, other: socketLine(service, client, "03", 0, 0) + socketLine(any4, none, "0A", 1, 34), next: 11, text: "is not accepted"},
		"not accepted by IPv6":                {own: asks, other6: socketLine(mapped, mappedClient, "01", 5, 0) + socketLine(any6, none6, "0A", 1, 34), next: 11, text: "is not accepted"},
		"no answer to a connect":              {own: socketLine(client, service, "02", 0, 24), other: socketLine(any4, none, "0A", 1, 34), next: 11},
		"a connect that does not arrive":      {own: socketLine(client, service, "02", 0, 24), other: socketLine(any4, none, "0A", 0, 34), text: "what is sent does not arrive"},
		"what was sent does not arrive":       {own: unacknowledged, other: socketLine(service, client, "01", 0, 34), text: "what is sent does not arrive"},
		"it has what was sent":                {own: unacknowledged, other: socketLine(service, client, "01", 5, 34), next: 11},
		"nowhere":                             {own: asks, other: socketLine(any4, none, "0A", 1, 34), text: "10.96.0.1:8080: its end is not seen on this node"},
		"not all can be read":                 {own: asks, unreadable: true, text: "not seen in its network namespace ("},
		"another connection has it":           {own: asks + translated + socketLine(client, server, "01", 0, 44), text: "not seen on this node"},
		"one of two from the same port":       {own: asks + translated + socketLine(client, "0200600A:1F90", "01", 0, 44), text: "not seen on this node"},
		"two have the same address":           {own: asks + translated, other: socketLine(server, client, "01", 5, 35), text: "several sockets"},
		"two clients have the same addresses": {own: asks, other: socketLine(client, service, "01", 0, 45) + socketLine(service, client, "01", 5, 34), text: "several sockets"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := procTree(t, map[int]byte{10: 'S', 11: 'T'})
			call := unix.SYS_READ
			if strings.Contains(name, "connect") && !strings.Contains(name, "connection") {
				call = unix.SYS_CONNECT
			}
			evidencetest.WriteTree(t, root, map[string]string{
				"10/task/10/syscall": fmt.Sprintf("%d 0x3 0x10 0x0 0x0 0x0 0x0 0x1 0x1\n", call), "10/task/10/wchan": "wait_woken",
				"10/net/tcp": socketLines + tt.own, "10/net/tcp6": socketLines + tt.own6, "10/net/fib_trie": "|-- 10.0.0.10\n/32 host LOCAL\n",
				"11/net/tcp6": socketLines + tt.other6, "11/net/fib_trie": "|-- 10.96.0.1\n/32 host LOCAL\n",
			})
			tcp := map[string]string{"11/net/tcp": socketLines + tt.other}
			if tt.unreadable {
				tcp = map[string]string{"11/net/tcp/is-a-directory": ""}
			}
			evidencetest.WriteTree(t, root, tcp)
			for pid, inode := range map[int]int{10: 24, 11: 34} {
				dir := filepath.Join(root, fmt.Sprint(pid))
				must.Do(t, os.Symlink(fmt.Sprintf("socket:[%d]", inode), dir+"/fd/3"))
				must.Do(t, os.Mkdir(dir+"/ns", 0o755))
				must.Do(t, os.Symlink(fmt.Sprintf("net:[%d]", pid), dir+"/ns/net"))
			}
			f, ok := New(proc.NewTable(root), root, nil).look(t.Context(), 10)
			check.Equal(t, ok, true, "look")
			for _, thread := range f.unmoved() {
				f.thread(t.Context(), thread)
			}
			f.queues(t.Context())
			got := wait{}
			if len(f.found) > 0 {
				got = f.found[0]
			}
			check.Equal(t, got.next, tt.next, "%+v", f.found)
			said := got.evidence + ": " + got.link.Evidence
			if !strings.Contains(said, tt.text) || strings.Contains(said, "another node") {
				t.Errorf("%q, want %q", said, tt.text)
			}
		})
	}
}

// TestUnixQueues: a listener of another network namespace is found by its path, if a connection of the client's own
// namespace waits there.
func TestUnixQueues(t *testing.T) {
	const head = "Num       RefCount Protocol Flags    Type St Inode Path\n"
	const waits, listens = "0: 00000003 00000000 00000000 0001 02     0 /%s\n", "0: 00000002 00000000 00010000 0001 01 %d /%s\n"
	for name, tt := range map[string]struct {
		own, other string
		connects   bool
		want       string
	}{
		"there":                   {own: fmt.Sprintf(waits, "a"), other: fmt.Sprintf(listens, 7, "a"), want: "[{/a 1 false [7]}]"},
		"here":                    {own: fmt.Sprintf(waits+listens, "a", 7, "a"), want: "[]"},
		"here or there":           {own: fmt.Sprintf(waits+listens, "a", 7, "a"), other: fmt.Sprintf(listens, 8, "a"), want: "[{/a 1 true [8]}]"},
		"nowhere":                 {own: fmt.Sprintf(waits, "a"), want: "[{/a 1 false []}]"},
		"another one's":           {other: fmt.Sprintf(waits+listens, "a", 7, "a"), want: "[]"},
		"whose queue may be full": {other: fmt.Sprintf(waits+listens, "a", 7, "a"), connects: true, want: "[{/a 1 false [7]}]"},
	} {
		t.Run(name, func(t *testing.T) {
			root := procTree(t, map[int]byte{10: 'S', 11: 'S', 12: 'S'})
			evidencetest.WriteTree(t, root, map[string]string{"12/net/unix": head + tt.own, "11/net/unix": head + tt.other})
			for pid, namespace := range map[int]string{10: "net:[2]", 11: "net:[1]", 12: "net:[2]"} {
				dir := filepath.Join(root, fmt.Sprint(pid), "ns")
				must.Do(t, os.Mkdir(dir, 0o755))
				must.Do(t, os.Symlink(namespace, dir+"/net"))
			}
			f := &waiting{Explorer: New(proc.NewTable(root), root, nil), pid: 12}
			got, err := f.unixQueues(t.Context(), tt.connects)
			must.Do(t, err)
			check.Equal(t, fmt.Sprint(got), tt.want, "queues")
		})
	}
}

// TestAcceptWait: the only listener at which a connection waits is not that of another client.
func TestAcceptWait(t *testing.T) {
	evidencetest.NeedUnixDiag(t, proc.EachSocket(t.Context(), 1<<proc.Listening, func(proc.Socket) {}))
	path := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", path)
	must.Do(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	client, err := net.Dial("unix", path)
	must.Do(t, err)
	t.Cleanup(func() { _ = client.Close() })
	f := &waiting{Explorer: New(proc.NewTable("/proc"), "/sys", nil), pid: 1}
	f.acceptWait(t.Context(), "its connection is not accepted", 1) // no socket has this inode
	for _, w := range f.found {
		if w.next != 0 || w.link != (facts.Link{}) {
			t.Errorf("named without proof: %+v", w)
		}
	}
}

// TestPendingConnect: a process that sleeps waits for the address which has not answered its connection at both looks; the
// runtime does not.
func TestPendingConnect(t *testing.T) {
	for name, tt := range map[string]struct {
		state   string
		runtime bool
		since   bool // only at the second look
		want    string
	}{
		"a process":           {state: "02", want: "10.96.0.1:8080"},
		"one that has begun":  {state: "02", since: true},
		"an answered connect": {state: "01"},
		"the runtime":         {state: "02", runtime: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := procTree(t, map[int]byte{10: 'S'})
			connected(t, root, 10, 24, socketLine("0A00000A:C004", "0100600A:1F90", tt.state, 0, 24))
			e := New(proc.NewTable(root), root, nil)
			if tt.runtime {
				e.symptom.RuntimePID = 10
			}
			f, ok := e.look(t.Context(), 10)
			must.Equal(t, ok, true, "look")
			if tt.since {
				f.first.sockets = nil
			}
			got := f.result(t.Context())
			check.Equal(t, got.link.Name, tt.want, "%+v", got)
			check.Equal(t, got.connects, tt.want != "", "%+v", got)
		})
	}
}

// TestHeldUpServer: of the servers to which a process that sleeps is connected, the only one that is held up is what it waits for.
func TestHeldUpServer(t *testing.T) {
	const client, first, second, elsewhere = "0A00000A:C004", "0A00000A:1F90", "0A00000A:1F91", "0100600A:1F90"
	for name, tt := range map[string]struct {
		states   [2]byte
		connects bool   // the second server
		service  string // the address of the first one that the client knows, if it is another one
		runtime  int
		want     []string
	}{
		"behind a service's address":  {states: [2]byte{'T', 'S'}, service: elsewhere, want: []string{"10", "11"}},
		"one that is stopped":         {states: [2]byte{'T', 'S'}, want: []string{"10", "11"}},
		"one that connects elsewhere": {states: [2]byte{'S', 'S'}, connects: true, want: []string{"10", "12", "10.96.0.1:8080"}},
		"both are held up":            {states: [2]byte{'T', 'S'}, connects: true, want: []string{"10"}},
		"both sleep":                  {states: [2]byte{'S', 'S'}, want: []string{"10"}},
		"the client is the runtime":   {states: [2]byte{'T', 'S'}, runtime: 10, want: []string{"10"}},
		"the server is the runtime":   {states: [2]byte{'T', 'S'}, runtime: 11, want: []string{"10"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := procTree(t, map[int]byte{10: 'S', 11: tt.states[0], 12: tt.states[1]})
			lines := socketLine(client, cmp.Or(tt.service, first), "01", 0, 24) + socketLine(first, client, "01", 0, 34) +
				socketLine("0A00000A:C006", second, "01", 0, 25) + socketLine(second, "0A00000A:C006", "01", 0, 35)
			if tt.connects {
				lines += socketLine("0A00000A:C005", elsewhere, "02", 0, 36)
			}
			for inode, pid := range map[int]int{24: 10, 25: 10, 34: 11, 35: 12, 36: 12} {
				connected(t, root, pid, inode, lines)
			}
			e := New(proc.NewTable(root), root, nil)
			e.symptom.RuntimePID = tt.runtime
			c := e.Process(t.Context(), 10)
			var got []string
			for _, l := range c.Links {
				if l.PID == 0 {
					got = append(got, l.Name)
					continue
				}
				got = append(got, fmt.Sprint(l.PID))
			}
			check.Equal(t, fmt.Sprint(got), fmt.Sprint(tt.want), "%+v", c)
		})
	}
}

// connected adds a descriptor of a socket to a process, and the sockets of its network namespace.
func connected(t *testing.T, root string, pid, inode int, lines string) {
	t.Helper()
	dir := filepath.Join(root, fmt.Sprint(pid))
	evidencetest.WriteTree(t, dir, map[string]string{
		"net/tcp": socketLines + lines, "net/tcp6": socketLines, "net/udp": socketLines, "net/udp6": socketLines,
		"net/fib_trie": "|-- 10.0.0.10\n/32 host LOCAL\n",
	})
	must.Do(t, os.Symlink(fmt.Sprintf("socket:[%d]", inode), filepath.Join(dir, "fd", fmt.Sprint(inode))))
	must.Do(t, os.MkdirAll(dir+"/ns", 0o755))
	_ = os.Symlink("net:[1]", dir+"/ns/net") // it may be there
}
