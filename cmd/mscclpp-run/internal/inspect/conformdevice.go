package inspect

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/verb"
	"github.com/mscclpp-go/mscclpp/framework/device/conformance"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/device/hip"
	"github.com/mscclpp-go/mscclpp/framework/device/native"
	"github.com/mscclpp-go/mscclpp/plugins"
)

// deviceSuite tests the back end of a device.
type deviceSuite struct {
	out     io.Writer
	file    string
	image   string
	options []string
	match   *regexp.Regexp
	verbose bool
}

func (v *deviceSuite) run(ctx context.Context) error {
	back, err := v.backend()
	if err != nil {
		return err
	}
	if conformance.IsChild() {
		return conformance.Child(back)
	}
	o := conformance.Options{Backend: back, Options: strings.Join(v.options, "\n"), Match: v.match}
	if v.image != "" {
		if o.Image, err = os.ReadFile(v.image); err != nil {
			return fmt.Errorf("conform: --kernels: %w", err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("conform: this program: %w", err)
	}
	o.Child = &conformance.Command{Path: self, Args: []string{"conform", "--device", v.file}}
	o.Progress = func(r conformance.Result) { fmt.Fprintln(v.out, r) }
	report, err := conformance.Suite(ctx, o)
	if err != nil {
		return err
	}
	if len(report.Results) == 0 {
		return verb.Usage("conform: no test of devices matches %q", v.match)
	}
	if _, err := fmt.Fprintln(v.out, report.Summary()); err != nil {
		return err
	}
	if report.Failed() > 0 {
		return &verb.Error{Code: 1}
	}
	return nil
}

// builtIn are the back ends that come with mscclpp-go.
var builtIn = map[string]func() (*native.Backend, error){"cuda": cuda.Backend, "hip": hip.Backend}

// backend loads the file, by the rules for jobs, or takes one that is built in.
func (v *deviceSuite) backend() (*native.Backend, error) {
	if own := builtIn[v.file]; own != nil {
		back, err := own()
		if err != nil {
			return nil, fmt.Errorf("conform: %w", err)
		}
		return back, nil
	}
	path, err := filepath.Abs(v.file)
	if err != nil {
		return nil, err
	}
	file, err := plugins.OpenLibrary(path, "")
	if err != nil {
		return nil, fmt.Errorf("conform: %w", err)
	}
	defer file.Close()
	if needs, err := native.Dependencies(file); err == nil && v.verbose {
		slog.New(slog.NewTextHandler(os.Stderr, nil)).Info("the back end is loaded into this process", "file", path, "loaded with it", needs)
	}
	back, err := native.Load(file, path)
	if err != nil {
		return nil, fmt.Errorf("conform: %w", err)
	}
	return back, nil
}
