package collectives_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device/host"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/kernel/image"
	"github.com/mscclpp-go/mscclpp/transports/shm"
)

// Images beside a plugin that were built before the arguments changed have the same
// ABI. They are refused by a message that says what to do: kernels would read
// addresses where there are none.
func TestStaleImagesAreRefused(t *testing.T) {
	for name, layout := range map[string]string{"another layout": "0123456789abcdef", "before layouts were kept": ""} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(images)); err != nil {
				t.Fatal(err)
			}
			change(t, filepath.Join(dir, image.ManifestFile), layout)
			config := shm.Config{}.Defaults()
			config.Images = dir
			inner, err := shm.New(config)
			if err != nil {
				t.Fatal(err)
			}
			err = reduceAlone(t, inner)
			if !errors.Is(err, framework.ErrUnavailable) || !strings.Contains(err.Error(), "argument layout") || !strings.Contains(err.Error(), "make kernels") {
				t.Errorf("%v: expected ErrUnavailable that names the layout and make kernels", err)
			}
		})
	}
}

// change gives all images of a manifest another layout.
func change(t *testing.T, file, layout string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var m image.Manifest
	if err := json.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}
	for i := range m.Images {
		if m.Images[i].Layout == "" {
			t.Errorf("%s: %s has no layout", file, m.Images[i].ID)
		}
		m.Images[i].Layout = layout
	}
	if text, err = json.Marshal(m); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// reduceAlone is one all-reduce of one rank over a transport.
func reduceAlone(t *testing.T, inner framework.Transport) error {
	t.Helper()
	ctx := context.Background()
	dev, err := host.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	tr, err := comm.NewTransport(ctx, inner, "embedded")
	if err != nil {
		t.Fatal(err)
	}
	defer tr.CloseModules()
	c, err := comm.New(ctx, bootstrap.InProcess(1)[0], comm.Options{Device: dev, Transports: []*comm.Transport{tr}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	x, err := collectives.New(ctx, c, collectives.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	v := []float32{1}
	return x.AllReduce(unsafe.Pointer(&v[0]), unsafe.Pointer(&v[0]), 1, kernel.Float32, kernel.Sum, nil)
}
