//go:build e2e

package vm

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/plegd/plegd/test/lab"
)

const (
	bootLimit = 15 * time.Minute
	// runLimit is for a command in the machine, callLimit for a request to plegd.
	runLimit  = 10 * time.Minute
	callLimit = 10 * time.Second
	// answerLimit is for a machine that may be dead.
	answerLimit = 2 * time.Minute
	// serialTail is how much of the console a failed boot shows.
	serialTail = 40
	// watchPeriod is how often plegd is asked, calm how long it must stay healthy.
	watchPeriod = 300 * time.Millisecond
	calm        = 4 * time.Second
)

// machine is a virtual machine. Its disks outlive a boot.
type machine struct {
	dir, image, ssh, web string // ssh is a port, web the URL of plegd
	client               *http.Client
	qemu, master         *process
}

// shared is the machine of all tests, or why there is none.
var shared struct {
	sync.Once
	m   *machine
	err error
}

// theMachine returns the machine, booted, with containerd and the package installed and
// all well.
func theMachine(t *testing.T) *machine {
	t.Helper()
	lab.RequireRoot(t)
	lab.RequirePrograms(t, "qemu-system-x86_64", "ssh", "mke2fs", "mmdebstrap")
	shared.Do(func() { shared.m, shared.err = newMachine(t) })
	if shared.err != nil {
		t.Fatalf("the virtual machine: %v", shared.err)
	}
	m := shared.m
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := m.tryWithin(answerLimit, "journalctl -b --no-pager -n 60 -u plegd -u containerd; plegd status; plegd incidents")
			t.Logf("the end of the console:\n%s\nthe machine's journal and plegd:\n%s", lab.Tail(m.path("console"), serialTail), out)
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
	image := exec.Command("bash", "image.sh")
	image.Stderr = os.Stderr
	out, err := image.Output()
	if err != nil {
		return nil, fmt.Errorf("image.sh: %w", err)
	}
	m := &machine{
		image:  strings.TrimSpace(string(out)),
		client: &http.Client{Timeout: callLimit, Transport: &http.Transport{DisableKeepAlives: true}},
	}
	// The tests' own directories end with a test, the machine with the last one.
	if m.dir, err = os.MkdirTemp("", "plegd-vm-"); err != nil { //nolint:usetesting // see above
		return m, err
	}
	if err := m.disks(t); err != nil {
		return m, err
	}
	if err := m.boot(t); err != nil {
		return m, err
	}
	if out, err := m.try(setUp); err != nil {
		return m, fmt.Errorf("install: %w\n%s", err, out)
	}
	return m, nil
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
// the files to be installed.
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
func (m *machine) boot(t testing.TB) (err error) {
	_, m.ssh, _ = net.SplitHostPort(lab.FreeAddress(t))
	web := lab.FreeAddress(t)
	m.web = "http://" + web
	argv := []string{
		"-name", "plegd-e2e-vm", "-display", "none", "-no-user-config", "-nodefaults",
		// No KVM: it is not there on most test machines. The clock source is named
		// because the kernel distrusts the processor's counter under emulation and
		// would take one that costs ten times as much. Without no_timer_check a boot on a
		// busy host ends at "timer not connected to IO-APIC".
		"-accel", "tcg,thread=multi,tb-size=256", "-cpu", "Nehalem", "-smp", "2", "-m", "1024", "-M", "q35",
		"-kernel", m.image + "/vmlinuz", "-initrd", m.image + "/initrd.img",
		"-append", "root=/dev/vda rw console=ttyS0 net.ifnames=0 panic=5 tsc=reliable clocksource=tsc no_timer_check mitigations=off quiet" +
			counterFrequency(),
		"-netdev", fmt.Sprintf("user,id=n,restrict=on,hostfwd=tcp:127.0.0.1:%s-:22,hostfwd=tcp:%s-:20290", m.ssh, web),
		"-device", "virtio-net-pci,netdev=n", "-device", "virtio-rng-pci",
		"-serial", "file:" + m.path("console"),
	}
	for _, disk := range []string{"root", "data", "payload"} {
		argv = append(argv, "-drive", "file="+m.path(disk+".img")+",if=virtio,format=raw")
	}
	if m.qemu, err = startProcess("qemu-system-x86_64", argv...); err != nil {
		return err
	}
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

func (m *machine) mustBoot(t testing.TB) {
	t.Helper()
	if err := m.boot(t); err != nil {
		t.Fatalf("boot: %v\n%s", err, lab.Tail(m.path("console"), serialTail))
	}
}

// status asks the machine's plegd. Times are the host's: some tests change the machine's.
func (m *machine) status() (lab.Status, error) {
	s, err := lab.GetStatus(m.client, m.web)
	s.Now = time.Now()
	return s, err
}

func (m *machine) watch(t testing.TB) *lab.Watch {
	return lab.NewWatchOf(t, nil, watchPeriod, m.status)
}

// awaitHealthy waits until plegd is healthy for a few relists.
func (m *machine) awaitHealthy(t testing.TB) {
	t.Helper()
	w := m.watch(t)
	defer w.End()
	calmSince(t, w, time.Now())
}

// calmSince waits until plegd has been healthy for a while, and returns how long that took.
func calmSince(t testing.TB, w *lab.Watch, from time.Time) time.Duration {
	t.Helper()
	took, err := w.Calm(from, wellWithin, calm)
	if err != nil {
		t.Fatalf("%v: %s", err, history(w.Sights(from), from))
	}
	return took
}

// history is lab.Story and the evidence of the last sight.
func history(sights []lab.Sight, from time.Time) string {
	if len(sights) == 0 {
		return "nothing"
	}
	return fmt.Sprintf("%s; last: %+v", lab.Story(sights, from), sights[len(sights)-1].Reasons)
}
