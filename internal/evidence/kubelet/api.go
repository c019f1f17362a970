package kubelet

import (
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
	connectsAfter = 30 * time.Second
)

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

	owned     map[uint32]bool // inodes of the kubelet's sockets, as of the last time they were listed
	ackedAt   time.Time       // when the server last acknowledged anything, an earlier kubelet's too; zero while unknown
	lostSince time.Time       // zero while a connection works
	answered  []uint32        // inodes of the connections that worked in the last sample
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
	if time.Since(a.readAt) >= configInterval {
		a.readConfig(ctx, set)
	}
	out := &facts.KubeletAPI{
		At: time.Now(), Server: a.client.server, Problem: a.problem,
		Certificate: plain.Cut(a.client.certificate), CertificateNotAfter: a.client.notAfter,
	}
	if a.client.port == 0 {
		return out, nil
	}
	found, err := a.sockets(ctx, set.PID)
	if err != nil {
		return nil, err
	}
	a.follow(found, out, set.Started)
	return out, nil
}

// restart begins again with another kubelet. That the one before it reached the same server shows that no proxy is needed.
func (a *API) restart(ctx context.Context, set *settings) {
	server := a.client.server
	acked := a.ackedAt
	*a = API{ProcFS: a.ProcFS, Process: a.Process, started: set.StartTicks}
	a.readConfig(ctx, set)
	if a.client.server == server {
		a.ackedAt = acked
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
func (a *API) sockets(ctx context.Context, pid int) ([]proc.TCPSocket, error) {
	network, err := proc.Link(proc.Path(a.ProcFS, pid, "ns/net"))
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
	if slices.ContainsFunc(known, works) {
		return known, nil
	}
	a.owned, err = proc.SocketInodes(a.ProcFS, pid)
	if err != nil {
		return nil, fmt.Errorf("which connections are the kubelet's cannot be read: %w", err)
	}
	return slices.DeleteFunc(found, foreign), nil
}

// works reports whether a connection is established and answered.
func works(s proc.TCPSocket) bool {
	silent := s.Unacked > 0 && s.LastAck >= silentAfter
	return s.State == proc.Established && s.Retransmits < stalledAfter && !silent
}

// follow describes the connections, and follows since when none works.
func (a *API) follow(found []proc.TCPSocket, out *facts.KubeletAPI, started time.Time) {
	working := false
	var answered []uint32
	for _, s := range found {
		if s.State != proc.Established {
			out.Connecting++
			continue
		}
		out.Connections++
		out.UnackedBytes = max(out.UnackedBytes, s.Unacked)
		out.Retransmits = max(out.Retransmits, s.Retransmits)
		acked := out.At.Add(-s.LastAck)
		if acked.After(a.ackedAt) {
			a.ackedAt = acked
		}
		// One that refuses each request closes its connection: a loss ends with one that stays.
		stays := a.lostSince.IsZero() || slices.Contains(a.answered, s.Inode)
		if works(s) {
			answered = append(answered, s.Inode)
			working = working || stays
		}
	}
	a.answered = answered
	// Without any connection the kubelet may use a proxy, unless it or the one before it had one.
	mayUseProxy := a.ackedAt.IsZero() && len(found) == 0
	mayConnect := !a.ackedAt.After(started) && out.At.Sub(started) < connectsAfter
	unknown := mayUseProxy || mayConnect
	switch {
	case working, unknown:
		a.lostSince = time.Time{}
	case a.lostSince.IsZero() && !a.ackedAt.After(started):
		a.lostSince = started // it was never answered
	case a.lostSince.IsZero():
		a.lostSince = out.At
	}
	out.AckedAt = a.ackedAt
	out.LostSince = a.lostSince
}
