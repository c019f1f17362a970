package cri

import (
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/plain"
)

const (
	// opPlugins is no operation of the CRI: it has no history and no metric.
	opPlugins = "plugins"
	// methodPlugins is containerd's own list of plugins, which it serves on the CRI's socket
	// too (api/services/introspection/v1/introspection.proto).
	methodPlugins = "/containerd.services.introspection.v1.Introspection/Plugins"
	// besideTimeout limits that call, and others that the kubelet does not make.
	besideTimeout = 2 * time.Second
	// maxPlugins bounds the plugins that are kept; containerd 2.4 has 70.
	maxPlugins = 512
)

// Plugin is a plugin of containerd.
type Plugin struct {
	Type string `json:"type"`
	ID   string `json:"id"`
	Err  string `json:"error,omitempty"` // why it was not loaded
}

// Plugins asks containerd for its plugins. Any other runtime answers Unimplemented. The error is a
// *facts.CallError.
func (c *Client) Plugins(ctx context.Context) ([]Plugin, error) {
	var out []Plugin
	a := &answer{decode: func(data mem.BufferSlice) (err error) {
		out, err = parsePlugins(data.Materialize())
		return err
	}}
	err := c.askBeside(ctx, opPlugins, &emptypb.Empty{}, a)
	if err != nil {
		return nil, err
	}
	return out, nil
}

// askBeside makes a call that has no history and no metric. The error is a *facts.CallError.
func (c *Client) askBeside(ctx context.Context, op string, req proto.Message, a *answer) error {
	ctx, cancel := context.WithTimeout(ctx, besideTimeout)
	defer cancel()
	conn, err := c.session.Load().connection()
	if err == nil {
		err = conn.Invoke(ctx, methods[op], req, a, grpc.MaxCallRecvMsgSize(smallBytes))
	}
	if err != nil {
		return errorOf(op, err)
	}
	return nil
}

// PluginState returns the state of the CRI plugin among containerd's plugins. Since containerd
// 2.0 it has parts, which are loaded where the plugin itself is disabled.
func PluginState(plugins []Plugin) *facts.CRIPlugin {
	found := &facts.CRIPlugin{}
	isListed := false
	for _, p := range plugins {
		part := p.Type == "io.containerd.cri.v1"
		whole := !part && p.ID == "cri"
		if !part && !whole {
			continue
		}
		isListed = isListed || whole
		if p.Err != "" && (found.Error == "" || part) {
			found.Error = p.Err // a part's error is the cause of the whole one's
		}
	}
	found.Absent = !isListed && found.Error == ""
	return found
}

var errPlugins = errors.New("containerd's list of plugins is not a message of its API")

// parsePlugins decodes PluginsResponse: plugins are its field 1.
func parsePlugins(b []byte) ([]Plugin, error) {
	var out []Plugin
	err := eachField(b, func(number protowire.Number, value []byte) error {
		if number != 1 || len(out) >= maxPlugins {
			return nil
		}
		p, err := parsePlugin(value)
		out = append(out, p)
		return err
	})
	return out, err
}

// parsePlugin decodes Plugin: type, id and init_err are its fields 1, 2 and 7.
func parsePlugin(b []byte) (Plugin, error) {
	var p Plugin
	err := eachField(b, func(number protowire.Number, value []byte) error {
		switch number {
		case 1:
			p.Type = limitedText(value, maxName)
		case 2:
			p.ID = limitedText(value, maxName)
		case 7:
			message, err := statusMessage(value)
			p.Err = message
			return err
		}
		return nil
	})
	return p, err
}

// statusMessage decodes google.rpc.Status: message is its field 2.
func statusMessage(b []byte) (string, error) {
	message := "it gave no reason"
	err := eachField(b, func(number protowire.Number, value []byte) error {
		if number == 2 {
			message = limitedText(value, maxMessage)
		}
		return nil
	})
	return message, err
}

func limitedText(b []byte, limit int) string { return plain.CutTo(strings.TrimSpace(string(b)), limit) }

// eachField calls f for each field of a message that has a length.
func eachField(b []byte, f func(protowire.Number, []byte) error) error {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return errPlugins
		}
		b = b[n:]
		if kind != protowire.BytesType {
			skipped := protowire.ConsumeFieldValue(number, kind, b)
			if skipped < 0 {
				return errPlugins
			}
			b = b[skipped:]
			continue
		}
		value, read := protowire.ConsumeBytes(b)
		if read < 0 {
			return errPlugins
		}
		b = b[read:]
		if err := f(number, value); err != nil {
			return err
		}
	}
	return nil
}
