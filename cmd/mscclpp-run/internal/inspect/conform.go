package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/verb"
	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/config"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/conformance"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/device/hip"
	"github.com/mscclpp-go/mscclpp/framework/transporttest"
	"github.com/mscclpp-go/mscclpp/plugins"
	"github.com/mscclpp-go/mscclpp/plugins/protocoltest"
)

// conform is the verb that runs the conformance suite against a plugin.
type conform struct {
	env       *verb.Env
	plugin    string
	transport string
	match     string
	device    string
	image     string
	options   []string
	format    string
	verbose   bool
	list      bool
}

// Conform returns the verb conform, which tests a transport by the conformance suite.
func Conform(env *verb.Env) *cobra.Command {
	v := conform{env: env}
	c := &cobra.Command{
		Use:  "--plugin PATH | --transport NAME | --device FILE | --list",
		Args: verb.FlagsAlone,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := v.ignored(c.Flags()); err != nil {
				return verb.Usage("conform: %v", err)
			}
			return v.run()
		},
	}
	c.Flags().StringVar(&v.plugin, "plugin", "", "program of the plugin to test")
	c.Flags().StringVar(&v.transport, "transport", "", "name of a transport, found as for a job")
	c.Flags().StringVar(&v.match, "run", "", "run the tests whose name matches this regular expression")
	c.Flags().StringVar(&v.device, "device", "auto", "whose memory the ranks use: host, cuda or hip for the GPUs in turn, or auto by what the transport needs; a path with a slash, or cuda or hip without a transport: the back end of a device, which is tested then")
	c.Flags().StringVar(&v.image, "kernels", "", "for the back end of a device: image of the suite's kernels, built for the device")
	c.Flags().StringArrayVar(&v.options, "option", nil, "for the back end of a device: key=value; may be repeated")
	c.Flags().StringVar(&v.format, "format", "table", "table, or json with one object a line")
	c.Flags().BoolVar(&v.list, "list", false, "list the tests and the rule that each checks, and test nothing")
	c.Flags().BoolVarP(&v.verbose, "verbose", "v", false, "show what the plugin prints")
	return c
}

// ofDevice reports whether the flag names the back end of a device: by its file, or one that is built in, with no transport that
// would use it.
func (v *conform) ofDevice() bool {
	return strings.Contains(v.device, "/") || builtIn[v.device] != nil && v.plugin == "" && v.transport == ""
}

// ignored refuses flags that would have no effect.
func (v *conform) ignored(flags *pflag.FlagSet) error {
	switch {
	case v.list && v.ofDevice():
		return verb.Beside(flags, "--list", "nothing is tested", "kernels", "option", "verbose")
	case v.list:
		return verb.Beside(flags, "--list", "nothing is tested", "device", "kernels", "option", "verbose")
	case !v.ofDevice():
		return verb.Beside(flags, "a transport", "they are for the back end of a device", "kernels", "option")
	}
	return nil
}

// run tests the plugin with the options that the configuration has for it. It
// fails when a test does.
func (v *conform) run() error {
	if v.ofDevice() {
		return v.runOnDevice()
	}
	if v.list == (v.plugin != "" || v.transport != "") || v.plugin != "" && v.transport != "" {
		return verb.Usage("conform: expected one of --plugin PATH, --transport NAME and --list")
	}
	if v.format != "table" && v.format != "json" {
		return verb.Usage("conform: --format %q: expected table or json", v.format)
	}
	if _, known := gpus[v.device]; !known && v.device != "auto" && v.device != "host" {
		return verb.Usage("conform: --device %q: expected auto, host, cuda, hip, or the path of a back end with a slash", v.device)
	}
	var err error
	o := transporttest.Options{}
	if o.Match, err = v.matching(); err != nil {
		return err
	}
	if v.list {
		return v.printList(o.Match)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	spec, err := v.spec(ctx)
	if err != nil {
		return err
	}
	if err := v.chooseDevice(ctx, spec, &o); err != nil {
		return err
	}
	if o.More, err = protocolOf(spec); err != nil {
		return err
	}
	o.Open = func(ctx context.Context) (*transporttest.Side, error) {
		c, err := plugins.Open(ctx, spec)
		if err != nil {
			return nil, err
		}
		return transporttest.External(c), nil
	}
	if v.format == "table" {
		o.Progress = func(r transporttest.Result) { fmt.Fprintln(v.env.Stdout, r) }
	}
	report, err := transporttest.Suite(ctx, o)
	if err != nil {
		return err
	}
	return v.print(report)
}

// matching are the names of the tests to run; nil: all.
func (v *conform) matching() (*regexp.Regexp, error) {
	if v.match == "" {
		return nil, nil
	}
	re, err := regexp.Compile(v.match)
	if err != nil {
		return nil, verb.Usage("conform: --run: %v", err)
	}
	return re, nil
}

// runOnDevice tests the back end of a device instead of a transport.
func (v *conform) runOnDevice() error {
	match, err := v.matching()
	if err != nil {
		return err
	}
	switch {
	case v.plugin != "" || v.transport != "":
		return verb.Usage("conform: --device %s is the back end of a device: expected neither --plugin nor --transport beside it", v.device)
	case v.list:
		return conformance.List(v.env.Stdout, match)
	case v.format != "table":
		return verb.Usage("conform: --format %s: expected table for the back end of a device", v.format)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	s := deviceSuite{out: v.env.Stdout, file: v.device, image: v.image, options: v.options, match: match, verbose: v.verbose}
	return s.run(ctx)
}

// protocolOf are the tests of the plugin as a program.
func protocolOf(spec plugins.Spec) ([]transporttest.Test, error) {
	p := protocoltest.Program{Path: spec.Path, Env: spec.Env}
	if len(spec.Options) > 0 {
		var err error
		if p.Options, err = json.Marshal(spec.Options); err != nil {
			return nil, fmt.Errorf("conform: options of %s: %w", spec.Name, err)
		}
	}
	return protocoltest.Tests(p), nil
}

// printList prints the tests with their rules: in the order in which they run, and
// whether or not they apply to a transport.
func (v *conform) printList(match *regexp.Regexp) error {
	encoder := json.NewEncoder(v.env.Stdout)
	n := 0
	for _, e := range transporttest.List(protocoltest.Tests(protocoltest.Program{})...) {
		if match != nil && !match.MatchString(e.Name) {
			continue
		}
		n++
		var err error
		if v.format == "json" {
			err = encoder.Encode(e)
		} else {
			_, err = fmt.Fprintf(v.env.Stdout, "%-36s %s\n", e.Name, e.Rule)
		}
		if err != nil {
			return err
		}
	}
	if n == 0 {
		return verb.Usage("conform: no test matches %q", v.match)
	}
	return nil
}

func (v *conform) print(r transporttest.Report) error {
	if v.format == "json" {
		if err := r.PrintJSON(v.env.Stdout); err != nil {
			return err
		}
	} else if _, err := fmt.Fprintln(v.env.Stdout, r.Summary()); err != nil {
		return err
	}
	switch {
	case len(r.Results) == 0:
		return verb.Usage("conform: no test of %s matches %q", r.Transport, v.match)
	case r.Failed() > 0:
		return &verb.Error{Code: 1}
	}
	return nil
}

// onGPU is how long a test may take on GPUs: the driver compiles kernels as it loads
// them.
const onGPU = 5 * time.Minute

// gpus are the types of GPUs that a suite can run on.
var gpus = map[string]struct {
	count func() (int, error)
	open  func(index int) (device.Device, error)
}{
	"cuda": {cuda.Count, func(i int) (device.Device, error) { return cuda.Open(i) }},
	"hip":  {hip.Count, func(i int) (device.Device, error) { return hip.Open(i) }},
}

// typeFor is the type of GPUs for whose processors a transport has kernels.
func typeFor(d framework.Description) string {
	if slices.ContainsFunc(d.Images, func(i framework.ImageInfo) bool { return strings.HasPrefix(i.Arch, "gfx") }) {
		return "hip"
	}
	return "cuda"
}

// chooseDevice has the ranks use GPUs if that is asked for, or if the transport needs
// such memory and there are some. Without one the suite runs what can be run.
func (v *conform) chooseDevice(ctx context.Context, spec plugins.Spec, o *transporttest.Options) error {
	typ := v.device
	switch v.device {
	case "host":
		return nil
	case "auto":
		info, err := plugins.Inspect(ctx, spec)
		if err != nil {
			return err
		}
		if !slices.Contains(info.Description.Needs, framework.NeedVMM) {
			return nil
		}
		typ = typeFor(info.Description)
	}
	n, err := gpus[typ].count()
	if err != nil || n == 0 {
		if v.device == typ {
			return fmt.Errorf("conform: --device %s: %w", typ, errors.Join(err, framework.ErrUnavailable))
		}
		return nil // the report says what is missing
	}
	o.Device = func(rank int) (device.Device, error) { return gpus[typ].open(rank % n) }
	o.TestLimit = onGPU
	return nil
}

// spec finds the plugin and its options.
func (v *conform) spec(ctx context.Context) (plugins.Spec, error) {
	cfg, err := v.env.Config()
	if err != nil {
		return plugins.Spec{}, err
	}
	output := io.Discard
	if v.verbose {
		output = os.Stderr
	}
	spec := plugins.Spec{
		Path: v.plugin, Name: v.transport, Layouts: collectives.Layouts(), StartTimeout: time.Duration(cfg.Plugins.StartTimeout),
		Log: slog.New(slog.NewTextHandler(output, nil)),
	}
	if v.transport != "" {
		catalog := catalogOf(cfg)
		if spec.Path, spec.SHA256, err = catalog.Find(v.transport); err != nil {
			return spec, err
		}
	} else {
		info, err := plugins.Inspect(ctx, spec)
		if err != nil {
			return spec, err
		}
		spec.Name = info.Description.Name
	}
	spec.Options = cfg.Transport[spec.Name]
	return spec, nil
}

// catalogOf says where the configuration looks for plugins.
func catalogOf(cfg *config.Effective) plugins.Catalog {
	c := plugins.Catalog{Dirs: cfg.Plugins.Dirs, BuiltIn: plugins.BuiltInDir(), Paths: map[string]plugins.Pinned{}}
	for name, p := range cfg.Plugins.Path {
		c.Paths[name] = plugins.Pinned{Path: p.File, SHA256: p.SHA256}
	}
	return c
}
