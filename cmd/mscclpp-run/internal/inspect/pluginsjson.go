package inspect

import (
	"encoding/json"

	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/verb"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/plugins"
)

// PluginLine is what the verb plugins says of a plugin in JSON: all that it knows.
type PluginLine struct {
	Name        string         `json:"name"`
	Path        string         `json:"path"`
	Source      string         `json:"source"`
	SHA256      string         `json:"sha256,omitempty"` // pinned
	Used        bool           `json:"used"`
	Version     string         `json:"version,omitempty"`
	Protocol    int            `json:"protocol,omitempty"`
	Channels    []string       `json:"channels,omitempty"`
	Signal      string         `json:"signal,omitempty"`
	Proxy       string         `json:"proxy,omitempty"`
	Needs       []string       `json:"needs,omitempty"`
	Probe       bool           `json:"probe,omitempty"`
	Streams     bool           `json:"streams,omitempty"`
	Links       int            `json:"links,omitempty"`
	Images      int            `json:"images"`
	ImageList   []imageLine    `json:"image_list,omitempty"`
	MachineCode map[string]int `json:"machine_code,omitempty"` // by chip, of how many images
	KernelCount int            `json:"kernels"`
	KernelList  []kernelLine   `json:"kernel_list,omitempty"`
	Options     []optionLine   `json:"options,omitempty"`
	Error       string         `json:"error,omitempty"`
}

type imageLine struct {
	ID     string `json:"id"`
	Arch   string `json:"arch"`
	Family string `json:"family"`
	Type   string `json:"type,omitempty"`
	ABI    uint32 `json:"abi"`
	Layout string `json:"layout,omitempty"`
	SHA256 string `json:"sha256,omitempty"`
	Bytes  uint64 `json:"bytes,omitempty"`
}

type kernelLine struct {
	Collective string   `json:"collective,omitempty"`
	Algorithm  string   `json:"algorithm"`
	Symbol     string   `json:"symbol"`
	Family     string   `json:"family"`
	Types      []string `json:"types,omitempty"`
	Ops        []string `json:"ops,omitempty"`
	Channels   []string `json:"channels,omitempty"`
	MaxRanks   int      `json:"max_ranks,omitempty"`
	MaxThreads int      `json:"max_threads,omitempty"`
}

type optionLine struct {
	Name    string `json:"name"`
	Type    string `json:"type"`
	Default string `json:"default"`
	Help    string `json:"help,omitempty"`
}

func pluginsJSON(env *verb.Env, list []found) error {
	enc := json.NewEncoder(env.Stdout)
	for i := range list {
		f := &list[i]
		line := PluginLine{Name: f.Name, Path: f.Path, Source: f.Source, SHA256: f.SHA256, Used: f.Rejected == nil && f.err == nil}
		if f.err != nil {
			line.Error = f.err.Error()
		}
		if f.asked {
			line.Protocol = f.info.ProtocolVersion
			line.Options = optionLines(f.info.Schema)
			line.describe(f.info.Description)
			line.Channels = f.kinds()
			line.MachineCode = f.code
		}
		if err := enc.Encode(line); err != nil {
			return err
		}
	}
	return nil
}

func (l *PluginLine) describe(d framework.Description) {
	l.Version, l.Signal, l.Proxy = d.Version, string(d.Signal), string(d.Proxy)
	l.Probe, l.Streams, l.Links = d.Probe, d.Streams, d.Links
	for _, n := range d.Needs {
		l.Needs = append(l.Needs, string(n))
	}
	l.Images, l.KernelCount = len(d.Images), len(d.Kernels)
	for _, i := range d.Images {
		l.ImageList = append(l.ImageList, imageLine(i))
	}
	for _, k := range d.Kernels {
		line := kernelLine{
			Collective: k.Collective, Algorithm: k.Algorithm, Symbol: k.Symbol, Family: k.Family,
			Types: k.Types, Ops: k.Ops, MaxRanks: k.MaxRanks, MaxThreads: k.MaxThreads,
		}
		for _, c := range k.Channels {
			line.Channels = append(line.Channels, c.String())
		}
		l.KernelList = append(l.KernelList, line)
	}
}

func optionLines(schema []plugins.Option) []optionLine {
	var out []optionLine
	for _, o := range schema {
		out = append(out, optionLine(o))
	}
	return out
}
