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
)

// configInterval is the time between two reads of the kubeconfig and the client
// certificate, which rotates.
const configInterval = 30 * time.Second

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
