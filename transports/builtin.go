// Package transports lists the transports that this module builds. Each can run in
// a process of its own, as a plugin, or be embedded in the program that uses it.
package transports

import (
	"fmt"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/plugins"
	"github.com/mscclpp-go/mscclpp/transports/cudaipc"
	ibhost "github.com/mscclpp-go/mscclpp/transports/ib-host"
	ibnonatomic "github.com/mscclpp-go/mscclpp/transports/ib-nonatomic"
	"github.com/mscclpp-go/mscclpp/transports/nvls"
	"github.com/mscclpp-go/mscclpp/transports/shm"
	"github.com/mscclpp-go/mscclpp/transports/tcp"
	"github.com/mscclpp-go/mscclpp/transports/xgmi"
)

// BuiltIn is a transport of this module.
type BuiltIn struct {
	Name   string
	Schema func() []plugins.Option
	New    func(options map[string]any) (framework.Transport, error)
}

// List is all of them. A new one is a new line here.
var List = []BuiltIn{
	entry(shm.Name, shm.New),
	entry(cudaipc.Name, cudaipc.New),
	entry(nvls.Name, nvls.New),
	entry(xgmi.Name, xgmi.New),
	entry(ibhost.Name, ibhost.New),
	entry(ibnonatomic.Name, ibnonatomic.New),
	entry(tcp.Name, tcp.New),
}

func entry[C any](name string, create func(C) (framework.Transport, error)) BuiltIn {
	return BuiltIn{
		Name:   name,
		Schema: plugins.SchemaOf[C],
		New: func(options map[string]any) (framework.Transport, error) {
			c, err := plugins.Decode[C](options)
			if err != nil {
				return nil, &framework.Error{Op: "open", Transport: name, Peer: framework.NoPeer, Err: err}
			}
			return create(c)
		},
	}
}

// Embed makes a transport in this process. Its options are read as those of a
// plugin are: strictly.
func Embed(name string, options map[string]any) (framework.Transport, error) {
	var names []string
	for _, b := range List {
		if b.Name == name {
			return b.New(options)
		}
		names = append(names, b.Name)
	}
	return nil, fmt.Errorf("%w: transport %q cannot be embedded: expected one of %s", framework.ErrInvalid, name, strings.Join(names, " "))
}
