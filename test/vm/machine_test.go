//go:build e2e

package vm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/plegd/plegd/test/lab"
)

const (
	// keepEnv names a directory in which the machine is kept, running, for the
	// next run of the tests: it takes minutes to make one.
	keepEnv = "PLEGD_E2E_VM"

	bootLimit = 15 * time.Minute
	// runLimit is for a command in the machine, callLimit for a request to plegd.
	runLimit  = 10 * time.Minute
	callLimit = 10 * time.Second
	// answerLimit is for a machine that may be dead.
	answerLimit = 2 * time.Minute
	// serialTail is how much of the console a failed boot shows.
	serialTail = 40
)

// machine is a virtual machine. Its disks outlive a boot.
type machine struct {
	dir, image string
	keep       bool
	client     *http.Client
	running    running

	qemu, master *process
}

// running is what must be known of a qemu that runs.
type running struct {
	PID       int
	SSH, HTTP string
}

// shared is the machine that all tests of the run use.
var shared machineOnce

type machineOnce struct {
	sync.Once
	m   *machine
	err error
}

func (o *machineOnce) close() {
	switch {
	case o.m == nil || o.m.qemu == nil:
	case o.m.keep:
		o.m.hangUp()
		return
	default:
		o.m.powerOff()
	}
	if o.m != nil {
		_ = os.RemoveAll(o.m.dir)
	}
}

// theMachine returns the machine, booted, with containerd and the package
// installed and all well.
func theMachine(t *testing.T) *machine {
	t.Helper()
	lab.RequireRoot(t)
	lab.RequirePrograms(t, "qemu-system-x86_64", "ssh", "mke2fs", "mmdebstrap")
	shared.Do(func() {
		shared.m, shared.err = newMachine(t)
	})
	if shared.err != nil {
		t.Fatalf("the virtual machine: %v", shared.err)
	}
	m := shared.m
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of the console:\n%s", lab.Tail(m.path("console"), serialTail))
			out, _ := m.tryWithin(answerLimit, "journalctl -b --no-pager -n 60 -u plegd -u containerd; plegd status; plegd incidents")
			t.Logf("the machine's journal and plegd:\n%s", out)
			if _, err := m.tryWithin(answerLimit, "true"); err != nil {
				m.powerOff() // the next test boots it
			}
		}
	})
	if !m.qemu.running() {
		m.mustBoot(t)
	}
	m.awaitHealthy(t)
	return m
}

func newMachine(t *testing.T) (*machine, error) {
	out, err := exec.Command("bash", "image.sh").Output()
	if err != nil {
		var failed *exec.ExitError
		if errors.As(err, &failed) {
			err = fmt.Errorf("%w\n%s", err, failed.Stderr)
		}
		return nil, fmt.Errorf("image.sh: %w", err)
	}
	m := &machine{
		dir: os.Getenv(keepEnv), image: strings.TrimSpace(string(out)),
		client: &http.Client{Timeout: callLimit, Transport: &http.Transport{DisableKeepAlives: true}},
	}
	m.keep = m.dir != ""
	if m.keep {
		if m.attach() {
			return m, m.connect()
		}
		err = os.MkdirAll(m.dir, 0o755)
	} else {
		// The tests' own directories end with a test, the machine with the last one;
		// the path is short because of the sockets in it.
		m.dir, err = os.MkdirTemp("", "plegd-vm-") //nolint:usetesting // see above
	}
	if err != nil {
		return nil, err
	}
	if err := m.disks(t); err != nil {
		return m, err
	}
	if err := m.boot(); err != nil {
		return m, err
	}
	if out, err := m.try(setUp); err != nil {
		return m, fmt.Errorf("install: %w\n%s", err, out)
	}
	return m, m.remember()
}

// attach reports whether there is a machine that a run before has kept.
func (m *machine) attach() bool {
	b, err := os.ReadFile(m.path("running"))
	if err != nil || json.Unmarshal(b, &m.running) != nil {
		return false
	}
	m.qemu = attachProcess(m.running.PID)
	return m.qemu.running()
}

// remember keeps what attach needs.
func (m *machine) remember() error {
	b, err := json.Marshal(m.running)
	if err != nil {
		return err
	}
	return os.WriteFile(m.path("running"), b, 0o644)
}

// setUp configures containerd, loads the pause image and installs the package as
// a person does. containerd has a slice of its own, as where a kubelet reserves
// resources for it: a limit there does not hold the tests up.
const setUp = `set -e
systemctl stop containerd
mkdir -p /etc/systemd/system/containerd.service.d
printf '[Service]\nSlice=runtime.slice\n' >/etc/systemd/system/containerd.service.d/slice.conf
systemctl daemon-reload
mkdir -p /mnt/payload /etc/containerd /etc/cni/net.d /opt/cni/bin
mount -o ro LABEL=payload /mnt/payload
findmnt /var/lib/containerd
cp /mnt/payload/config.toml /etc/containerd/config.toml
cp /mnt/payload/lab.conflist /etc/cni/net.d/
systemctl start containerd
ctr --namespace k8s.io images import /mnt/payload/pause.tar
dpkg -i /mnt/payload/plegd.deb
umount /mnt/payload`

// disks makes the machine's three disks: the system, containerd's state, and
// what is to be installed.
func (m *machine) disks(t *testing.T) error {
	payload := m.path("payload")
	if err := os.MkdirAll(payload, 0o755); err != nil {
		return err
	}
	config := fmt.Sprintf("version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\n  sandbox_image = %q\n  disable_apparmor = true\n", lab.PauseImage)
	for name, text := range map[string]string{
		"config.toml":  config,
		"lab.conflist": `{"cniVersion": "0.3.1", "name": "lab", "plugins": [{"type": "loopback"}]}`,
	} {
		if err := os.WriteFile(filepath.Join(payload, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	for _, argv := range [][]string{
		{"cp", lab.ImageTar(t), payload + "/pause.tar"},
		{"cp", lab.PackageFile(t, "plegd_*_ARCH.deb"), payload + "/plegd.deb"},
		{"cp", "--sparse=always", m.image + "/root.img", m.path("root.img")},
		{"rm", "-f", m.path("payload.img"), m.path("data.img")},
		{"mke2fs", "-q", "-t", "ext4", "-L", "payload", "-d", payload, m.path("payload.img"), "64M"},
		{"mke2fs", "-q", "-t", "ext4", "-L", "containerd", m.path("data.img"), "512M"},
	} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, out)
		}
	}
	return nil
}

func (m *machine) path(name string) string { return filepath.Join(m.dir, name) }

// boot starts qemu and waits until systemd has started everything.
func (m *machine) boot() (err error) {
	if m.running.SSH, err = freePort(); err != nil {
		return err
	}
	if m.running.HTTP, err = freePort(); err != nil {
		return err
	}
	argv := []string{
		"-name", "plegd-e2e-vm", "-display", "none", "-no-user-config", "-nodefaults",
		// No KVM: it is not there on most test machines. The clock source is named
		// because the kernel distrusts the processor's counter under emulation and
		// would take one that costs ten times as much. Without no_timer_check a boot on a
		// busy host ends at "timer not connected to IO-APIC".
		"-accel", "tcg,thread=multi,tb-size=256", "-cpu", "Nehalem", "-smp", "2", "-m", "1024", "-M", "q35",
		"-kernel", m.image + "/vmlinuz", "-initrd", m.image + "/initrd.img",
		"-append", "root=/dev/vda rw console=ttyS0 net.ifnames=0 panic=5 tsc=reliable clocksource=tsc no_timer_check mitigations=off quiet" + counterFrequency(),
		"-netdev", fmt.Sprintf("user,id=n,restrict=on,hostfwd=tcp:127.0.0.1:%s-:22,hostfwd=tcp:127.0.0.1:%s-:20290", m.running.SSH, m.running.HTTP),
		"-device", "virtio-net-pci,netdev=n", "-device", "virtio-rng-pci",
		"-serial", "file:" + m.path("console"),
	}
	for _, disk := range []string{"root", "data", "payload"} {
		argv = append(argv, "-drive", "file="+m.path(disk+".img")+",if=virtio,format=raw")
	}
	if m.qemu, err = startProcess(!m.keep, "qemu-system-x86_64", argv...); err != nil {
		return err
	}
	m.running.PID = m.qemu.pid
	if err := m.connect(); err != nil {
		return err
	}
	// "degraded" when a unit has failed; what matters is looked at by the tests.
	out, _ := m.try("systemctl is-system-running --wait")
	if state := strings.TrimSpace(out); state != "running" && state != "degraded" {
		return fmt.Errorf("the system is %q", state)
	}
	return m.checkClock()
}

// counterFrequency is the kernel's argument with the frequency of the processor's
// counter, which is the host's under emulation: the kernel's own calibration takes
// milliseconds, in which a busy host may not run the machine, and its clock runs
// many times too fast then. Only a host that is virtual itself shows the frequency.
func counterFrequency() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	var mhz float64
	virtual := false
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(name) {
		case "cpu MHz":
			mhz, _ = strconv.ParseFloat(strings.TrimSpace(value), 64)
		case "flags":
			flags := strings.Fields(value)
			virtual = slices.Contains(flags, "hypervisor") && slices.Contains(flags, "constant_tsc")
		}
	}
	if !virtual || mhz == 0 {
		return ""
	}
	return fmt.Sprintf(" tsc_early_khz=%.0f", 1000*mhz)
}

// checkClock returns an error where the machine's clock does not run as fast as
// the host's: every time limit and every age in there would be wrong.
func (m *machine) checkClock() error {
	const window = 10 * time.Second
	at := func() (host time.Time, guest float64, err error) {
		host = time.Now()
		out, err := m.try("cut -d' ' -f1 /proc/uptime")
		if err == nil {
			guest, err = strconv.ParseFloat(strings.TrimSpace(out), 64)
		}
		return host, guest, err
	}
	host, guest, err := at()
	if err != nil {
		return err
	}
	time.Sleep(window)
	hostLater, guestLater, err := at()
	if err != nil {
		return err
	}
	if rate := (guestLater - guest) / hostLater.Sub(host).Seconds(); rate < 0.5 || rate > 2 {
		return fmt.Errorf("the machine's clock runs %.1f times as fast as the host's: it was calibrated on a host that was too busy", rate)
	}
	return nil
}

func (m *machine) mustBoot(t *testing.T) {
	t.Helper()
	if err := errors.Join(m.boot(), m.remember()); err != nil {
		t.Fatalf("boot: %v\n%s", err, lab.Tail(m.path("console"), serialTail))
	}
}

// connect waits for ssh.
func (m *machine) connect() error {
	return within(bootLimit, m.qemu, m.login)
}

// login opens the connection that all commands share, and forwards containerd's
// socket through it. It is one key exchange for a boot: that takes seconds in
// there.
func (m *machine) login() error {
	_ = os.Remove(m.CRISocket())
	_ = os.Remove(m.path("ssh"))
	master, err := startProcess(true, "ssh", m.ssh("-M", "-N", "-L", m.CRISocket()+":/run/containerd/containerd.sock")...)
	if err != nil {
		return err
	}
	if err := within(bootLimit, master, func() error {
		return exec.Command("ssh", m.ssh("-O", "check")...).Run()
	}); err != nil {
		master.kill()
		return fmt.Errorf("%w: %s", err, master.output.String())
	}
	m.master = master
	return nil
}

// ssh returns ssh's arguments, with the options before the machine's name.
func (m *machine) ssh(options ...string) []string {
	argv := []string{
		"-F", "/dev/null", "-p", m.running.SSH, "-i", m.image + "/key", "-o", "BatchMode=yes", "-o", "LogLevel=ERROR",
		"-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "ConnectTimeout=120",
		"-o", "ExitOnForwardFailure=yes", "-o", "ControlPath=" + m.path("ssh"),
	}
	return append(append(argv, options...), "root@127.0.0.1")
}

// CRISocket is containerd's socket, forwarded.
func (m *machine) CRISocket() string { return m.path("cri") }

// CRI returns a client of the machine's containerd.
func (m *machine) CRI(t *testing.T) *lab.CRI {
	t.Helper()
	return lab.OpenCRI(t, m.CRISocket())
}

// try runs a shell script in the machine.
func (m *machine) try(script string) (string, error) { return m.tryWithin(runLimit, script) }

func (m *machine) tryWithin(limit time.Duration, script string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "ssh", append(m.ssh("-o", "ControlMaster=no"), "sh")...)
	cmd.Stdin = strings.NewReader(script)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// run runs a shell script in the machine that must succeed.
func (m *machine) run(t testing.TB, script string) string {
	t.Helper()
	out, err := m.try(script)
	if err != nil {
		t.Fatalf("in the machine: %s: %v\n%s", script, err, out)
	}
	return strings.TrimSpace(out)
}

// property is a property of a unit.
func (m *machine) property(t testing.TB, unit, name string) string {
	t.Helper()
	return m.run(t, "systemctl show --value --property="+name+" "+unit)
}

// powerOff ends qemu as a power cut does: unwritten data is lost.
func (m *machine) powerOff() {
	m.qemu.kill()
	m.hangUp()
}

// hangUp forgets the connections of a boot that has ended.
func (m *machine) hangUp() {
	if m.master != nil {
		m.master.kill()
		m.master = nil
	}
}

// status asks the machine's plegd.
func (m *machine) status() (s lab.Status, err error) {
	err = m.get("/api/v1/status", &s)
	return s, err
}

// get asks the machine's plegd, over its TCP port.
func (m *machine) get(path string, into any) error {
	answer, err := m.client.Get("http://127.0.0.1:" + m.running.HTTP + path)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s %s", path, answer.Status, b)
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(b, into)
}

// awaitHealthy waits until plegd says that all is well, for a few relists.
func (m *machine) awaitHealthy(t testing.TB) {
	t.Helper()
	var since time.Time
	lab.Eventually(t, wellWithin, "plegd in the machine is healthy", func() error {
		s, err := m.status()
		if err == nil && s.State != "healthy" {
			err = fmt.Errorf("it is %s: %+v", s.State, s.Reasons)
		}
		switch {
		case err != nil:
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
			err = errors.New("it has just become healthy")
		case time.Since(since) < calm:
			err = errors.New("it has just become healthy")
		}
		return err
	})
}

// process is a program of the host that the tests have started.
type process struct {
	pid    int
	name   string
	output bytes.Buffer
	done   chan struct{}
}

// startProcess starts a program, which ends with the tests or not.
func startProcess(bound bool, program string, args ...string) (*process, error) {
	p := &process{name: program, done: make(chan struct{})}
	cmd := exec.Command(program, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if bound {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
		cmd.Stdout, cmd.Stderr = &p.output, &p.output
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p.pid = cmd.Process.Pid
	go func() {
		_ = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// attachProcess returns a qemu that a run before has started.
func attachProcess(pid int) *process {
	p := &process{pid: pid, name: "qemu-system-x86_64", done: make(chan struct{})}
	go func() {
		defer close(p.done)
		for {
			// The kernel keeps 15 bytes of the name.
			comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
			if err != nil || !strings.HasPrefix(p.name, strings.TrimSpace(string(comm))) {
				return
			}
			time.Sleep(200 * time.Millisecond)
		}
	}()
	return p
}

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

func (p *process) kill() {
	if p.running() {
		_ = syscall.Kill(p.pid, syscall.SIGKILL)
	}
	<-p.done
}

// within polls a condition until it holds, the time is over or a process ends.
func within(limit time.Duration, p *process, condition func() error) error {
	deadline := time.Now().Add(limit)
	for {
		err := condition()
		switch {
		case err == nil:
			return nil
		case !p.running():
			return fmt.Errorf("%s has ended: %s", p.name, p.output.String())
		case time.Now().After(deadline):
			return fmt.Errorf("not within %s: %w", limit, err)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, errors.Join(err, l.Close())
}
