package kubelet

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"go.yaml.in/yaml/v2"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/plain"
	"github.com/plegd/plegd/internal/proc"
)

const (
	// configInterval is the time between two reads of the kubeconfig and the client
	// certificate, which rotates.
	configInterval = 30 * time.Second
	// stalledAfter is the number of unanswered retransmissions in a row from which a
	// connection is stalled: about 1.5 s.
	stalledAfter = 3
	// silentAfter is how long a server has acknowledged nothing, with bytes to acknowledge,
	// until its connection is stalled: without a route nothing is sent again. A kubelet renews
	// its lease every 10 s.
	silentAfter = 12 * time.Second
	// connectsAfter is how long after its start a kubelet is connected at the latest.
	connectsAfter = 15 * time.Second
	// staysAfter is the age of a connection that is not refused: the server closes one on which a request has been
	// refused within a second (golang.org/x/net/http2, goAwayTimeout).
	staysAfter = 1500 * time.Millisecond
	// refusedWithin is how long a connection on which a request is refused usually lasts.
	refusedWithin = 300 * time.Millisecond
	// requestBytes is less than a renewal of the lease has, and more than a ping of HTTP/2.
	requestBytes = 256
	// defaultLease is the default of nodeLeaseDurationSeconds.
	defaultLease = 40 * time.Second
)

// quietAfter is how long no request has gone over a connection until it does not count: two renewals of the lease have
// been missed, a quarter of its duration and 4 % apart. 0 is never, where the kubelet's files could not be read.
func (s *settings) quietAfter() time.Duration {
	if s.Problem != "" {
		return 0
	}
	return cmp.Or(s.lease, defaultLease) * 52 / 100
}

// API samples the kubelet's connections to its API server, and its client certificate. It
// sends nothing.
type API struct {
	ProcFS  string
	Process *Process

	started uint64 // of the kubelet that the rest is about, in ticks
	files   namedFiles
	readAt  time.Time
	client  apiClient
	problem string

	owned       map[uint32]bool       // inodes of the kubelet's sockets, as of the last time they were listed
	connections map[uint32]connection // by inode, as of the last sample
	direct      bool                  // there has been one: the kubelet uses no proxy
	watchedAt   time.Time             // the first sample
	sampledAt   time.Time             // the last one
	ackedAt     time.Time             // when the server last acknowledged a request, an earlier kubelet's too; zero while unknown
	doubtedAt   time.Time             // the sample since the last working connection in which there was a new one
	lostSince   time.Time             // zero while a connection works
}

// connection is an established connection. A server that refuses a request lets no other one follow on its connection,
// and closes that once its streams have ended (k8s.io/apiserver, pkg/endpoints/filters/authentication.go).
type connection struct {
	seenAt time.Time // the first sample that had it
	usedAt time.Time // when the server last acknowledged a request on it, seenAt before that
	acked  uint64    // bytes
}

// apiClient is what a kubeconfig says.
type apiClient struct {
	server   string // host and port
	port     uint16
	address  netip.Addr // invalid where the server is a name
	notAfter time.Time  // of the client certificate; zero for none, or an unknown one
	// certificate is the file that holds it, "" where it is a part of the kubeconfig.
	certificate string
}

// Sample returns the kubelet's way to its API server; ErrNone without a kubelet or an API
// server.
func (a *API) Sample(ctx context.Context) (*facts.KubeletAPI, error) {
	set := a.Process.current.Load()
	if set == nil || set.kubeconfig == "" {
		return nil, ErrNone
	}
	if set.StartTicks != a.started {
		a.restart(ctx, set)
	}
	expired := !a.client.notAfter.IsZero() && time.Now().After(a.client.notAfter)
	if expired || time.Since(a.readAt) >= configInterval {
		a.readConfig(ctx, set)
	}
	out := &facts.KubeletAPI{
		At: time.Now(), Server: a.client.server, Problem: a.problem,
		Certificate: plain.Cut(a.client.certificate), CertificateNotAfter: a.client.notAfter,
	}
	if a.client.port == 0 {
		return out, nil
	}
	found, err := a.sockets(ctx, set)
	if err == nil && !a.lostSince.IsZero() && slices.ContainsFunc(found, a.isNew) {
		found, err = a.lasting(ctx, set, found)
	}
	if err != nil {
		return nil, err
	}
	out.At = time.Now()
	a.follow(found, out, set)
	return out, nil
}

// restart begins again with another kubelet. That the one before it reached the same server shows that no proxy is
// needed, and a loss that has lasted ends with a connection.
func (a *API) restart(ctx context.Context, set *settings) {
	server := a.client.server
	direct := a.direct
	acked := a.ackedAt
	lost := a.lostSince
	if a.sampledAt.Sub(lost) < connectsAfter {
		lost = time.Time{}
	}
	*a = API{ProcFS: a.ProcFS, Process: a.Process, started: set.StartTicks, watchedAt: a.watchedAt}
	a.readConfig(ctx, set)
	if a.client.server == server {
		a.direct = direct
		a.ackedAt = acked
		a.lostSince = lost
	}
}

// readConfig reads the kubeconfig and the client certificate. What cannot be read is kept.
func (a *API) readConfig(ctx context.Context, set *settings) {
	a.readAt = time.Now()
	client, err := readClient(ctx, &a.files, set)
	a.problem = ""
	if err != nil {
		a.problem = plain.Cut(err.Error())
	}
	if client.port != 0 {
		a.client = client
	}
}

// readClient reads the kubeconfig and the certificate that it names.
func readClient(ctx context.Context, files *namedFiles, set *settings) (apiClient, error) {
	if !filepath.IsAbs(set.kubeconfig) {
		return apiClient{}, errors.New("--kubeconfig: a relative path, and the kubelet's working directory cannot be read")
	}
	b, err := files.one(ctx, set.tree, set.kubeconfig)
	if err != nil {
		return apiClient{}, err
	}
	var config clientConfig
	if yaml.Unmarshal(b, &config) != nil {
		return apiClient{}, fmt.Errorf("%s: not a valid kubeconfig", set.kubeconfig)
	}
	out, err := parseServer(config.server())
	if err != nil {
		return apiClient{}, fmt.Errorf("%s: %w", set.kubeconfig, err)
	}
	user := config.user()
	var content []byte
	switch {
	case user.CertificateData != "":
		content, err = base64.StdEncoding.DecodeString(user.CertificateData)
	case user.Certificate != "":
		out.certificate = absolute(filepath.Dir(set.kubeconfig), user.Certificate)
		content, err = files.one(ctx, set.tree, out.certificate)
	default:
		return out, nil // a token, or a plugin
	}
	if err != nil {
		return out, fmt.Errorf("the client certificate: %w", err)
	}
	out.notAfter, err = notAfter(content)
	if err != nil {
		return out, err
	}
	// Since its certificates rotate, a kubelet uses the newest that it has been issued, and the
	// one in its kubeconfig may be old.
	file := filepath.Join(set.certDir, issuedCertificate)
	issued, err := files.one(ctx, set.tree, file)
	if err != nil {
		return out, nil //nolint:nilerr // a kubelet without rotation has none
	}
	newest, err := notAfter(issued)
	if err == nil && newest.After(out.notAfter) {
		out.notAfter = newest
		out.certificate = file
	}
	return out, nil
}

// issuedCertificate is the kubelet's newest client certificate in its --cert-dir
// (k8s.io/client-go/util/certificate, certificate_store.go).
const issuedCertificate = "kubelet-client-current.pem"

// clientConfig is a kubeconfig.
type clientConfig struct {
	CurrentContext string `yaml:"current-context"`
	Contexts       []struct {
		Name    string
		Context struct{ Cluster, User string }
	}
	Clusters []struct {
		Name    string
		Cluster struct{ Server string }
	}
	Users []struct {
		Name string
		User clientUser
	}
}

type clientUser struct {
	Certificate     string `yaml:"client-certificate"`
	CertificateData string `yaml:"client-certificate-data"`
}

// context returns the names of the cluster and the user of the current context.
func (c *clientConfig) context() (cluster, user string) {
	for _, one := range c.Contexts {
		if one.Name == c.CurrentContext {
			return one.Context.Cluster, one.Context.User
		}
	}
	return "", ""
}

// server returns the URL of the API server; "" for none.
func (c *clientConfig) server() string {
	name, _ := c.context()
	for _, one := range c.Clusters {
		if one.Name == name {
			return one.Cluster.Server
		}
	}
	return ""
}

func (c *clientConfig) user() clientUser {
	_, name := c.context()
	for _, one := range c.Users {
		if one.Name == name {
			return one.User
		}
	}
	return clientUser{}
}

// parseServer decodes the URL of an API server.
func parseServer(server string) (apiClient, error) {
	u, err := url.Parse(server)
	if err != nil || u.Hostname() == "" {
		return apiClient{}, errors.New("its current context names no server")
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80"}[u.Scheme]
	}
	if port == "" {
		port = "443"
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return apiClient{}, errors.New("its current context names no valid port")
	}
	out := apiClient{server: net.JoinHostPort(u.Hostname(), port), port: uint16(number)}
	address, err := netip.ParseAddr(u.Hostname())
	if err == nil {
		out.address = address.Unmap()
	}
	return out, nil
}

// notAfter returns when the first certificate of a PEM file expires. The file may hold a
// private key, which is left alone.
func notAfter(content []byte) (time.Time, error) {
	for {
		block, rest := pem.Decode(content)
		if block == nil {
			return time.Time{}, errors.New("the client certificate: no PEM certificate")
		}
		if block.Type == "CERTIFICATE" {
			certificate, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				return time.Time{}, errors.New("the client certificate: not valid")
			}
			return certificate.NotAfter, nil
		}
		content = rest
	}
}

// sockets returns the kubelet's TCP sockets to its API server. The kubelet's descriptors are
// listed only where none of the sockets that are known as its own works.
func (a *API) sockets(ctx context.Context, set *settings) ([]proc.TCPSocket, error) {
	network, err := proc.Link(proc.Path(a.ProcFS, set.PID, "ns/net"))
	if err != nil {
		return nil, fmt.Errorf("the kubelet's network namespace: %w", err)
	}
	plegds, err := proc.Link("/proc/self/ns/net")
	if err != nil || plegds != network {
		return nil, errors.New("the kubelet's connections are in another network namespace than plegd's")
	}
	found, err := proc.TCPTo(ctx, a.client.port, 1<<proc.Established|1<<proc.SynSent)
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(s proc.TCPSocket) bool {
		return a.client.address.IsValid() && s.Remote.Addr() != a.client.address
	})
	foreign := func(s proc.TCPSocket) bool { return !a.owned[s.Inode] }
	known := slices.DeleteFunc(slices.Clone(found), foreign)
	if slices.ContainsFunc(known, func(s proc.TCPSocket) bool { return a.carries(s, set, time.Now()) }) {
		return known, nil
	}
	a.owned, err = proc.SocketInodes(a.ProcFS, set.PID)
	if err != nil {
		return nil, fmt.Errorf("which connections are the kubelet's cannot be read: %w", err)
	}
	return slices.DeleteFunc(found, foreign), nil
}

// isNew reports whether a socket was not there in the last sample.
func (a *API) isNew(s proc.TCPSocket) bool {
	_, known := a.connections[s.Inode]
	return !known
}

// lasting returns the sockets a moment later, without those that are new since: one on which a request is refused is
// there for a moment.
func (a *API) lasting(ctx context.Context, set *settings, found []proc.TCPSocket) ([]proc.TCPSocket, error) {
	select {
	case <-time.After(refusedWithin):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	later, err := a.sockets(ctx, set)
	return slices.DeleteFunc(later, func(s proc.TCPSocket) bool {
		isSame := func(first proc.TCPSocket) bool { return first.Inode == s.Inode }
		return a.isNew(s) && !slices.ContainsFunc(found, isSame)
	}), err
}

// works reports whether a connection is established and answered.
func works(s proc.TCPSocket) bool {
	silent := s.Unacked > 0 && s.LastAck >= silentAfter
	return s.State == proc.Established && s.Retransmits < stalledAfter && !silent
}

// observe notes the established connections of a sample.
func (a *API) observe(found []proc.TCPSocket, t time.Time) {
	last := a.connections
	a.connections = map[uint32]connection{}
	for _, s := range found {
		a.direct = true
		if s.State != proc.Established {
			continue
		}
		known, isKnown := last[s.Inode]
		if !isKnown {
			known = connection{seenAt: t, usedAt: t, acked: s.Acked}
		}
		isUsed := s.Acked == 0 || s.Acked-known.acked >= requestBytes // 0: not known, before Linux 4.1
		if isUsed {
			known.usedAt = t.Add(-s.LastAck)
		}
		if isUsed && t.Sub(known.seenAt) >= staysAfter {
			a.ackedAt = facts.Later(a.ackedAt, known.usedAt)
		}
		known.acked = s.Acked
		a.connections[s.Inode] = known
	}
}

// carries reports whether the kubelet's requests go over a connection that works.
func (a *API) carries(s proc.TCPSocket, set *settings, t time.Time) bool {
	known, isKnown := a.connections[s.Inode]
	quiet := set.quietAfter()
	return works(s) && (!isKnown || quiet == 0 || t.Sub(known.usedAt) < quiet)
}

// follow describes the connections, and follows since when none works.
func (a *API) follow(found []proc.TCPSocket, out *facts.KubeletAPI, set *settings) {
	a.observe(found, out.At)
	a.watchedAt = cmp.Or(a.watchedAt, out.At)
	a.sampledAt = out.At
	var working, isNew bool
	var quietSince time.Time // since when no request has gone over a connection that stays
	for _, s := range found {
		if s.State != proc.Established {
			out.Connecting++
			continue
		}
		out.Connections++
		out.UnackedBytes = max(out.UnackedBytes, s.Unacked)
		out.Retransmits = max(out.Retransmits, s.Retransmits)
		known := a.connections[s.Inode]
		switch {
		case !works(s):
		case out.At.Sub(known.seenAt) < staysAfter:
			isNew = true
		case a.carries(s, set, out.At):
			working = true
		default:
			quietSince = facts.Later(quietSince, known.usedAt)
		}
	}
	mayConnect := !a.ackedAt.After(set.Started) && out.At.Sub(set.Started) < connectsAfter
	switch {
	case working:
		a.lostSince = time.Time{}
		a.doubtedAt = time.Time{}
	case !a.lostSince.IsZero(), !a.direct, mayConnect:
	case isNew && (a.doubtedAt.IsZero() || out.At.Sub(a.doubtedAt) < staysAfter):
		a.doubtedAt = cmp.Or(a.doubtedAt, out.At)
	default:
		a.lostSince = a.lossBegan(out.At, set.Started, quietSince)
	}
	out.AckedAt = a.ackedAt
	out.LostSince = a.lostSince
	out.Unproven = a.direct && !working && (isNew || a.lostSince.IsZero())
}

// lossBegan returns the first moment from which on no connection is known to have worked.
func (a *API) lossBegan(t, started, quietSince time.Time) time.Time {
	switch {
	case !quietSince.IsZero():
		return quietSince
	case a.ackedAt.After(started):
		return cmp.Or(a.doubtedAt, t)
	}
	return facts.Later(started, a.watchedAt)
}
