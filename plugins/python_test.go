package plugins

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/internal/promise"
)

// python is the plugin in testdata, which is written from the documentation.
func python(t *testing.T) (Spec, *buffer) {
	t.Helper()
	protoc, err := exec.LookPath("protoc")
	if err != nil {
		t.Skip("protoc is not installed")
	}
	if err := exec.Command("/usr/bin/python3", "-c", "import grpc, google.protobuf").Run(); err != nil {
		t.Skip("/usr/bin/python3 has no grpc")
	}
	dir := t.TempDir()
	if out, err := exec.Command(protoc, "--proto_path=proto", "--python_out="+dir, "transport.proto").CombinedOutput(); err != nil {
		t.Fatalf("protoc: %v: %s", err, out)
	}
	log := &buffer{}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log:\n%s", log)
		}
	})
	return Spec{
		Name: "echo", Path: "testdata/python/mscclpp-transport-echo", Log: logTo(log),
		Env: []string{"MSCCLPP_PLUGIN_PB2=" + dir, "PYTHONDONTWRITEBYTECODE=1"},
	}, log
}

func TestPython(t *testing.T) {
	spec, log := python(t)
	spec.Options = map[string]any{"prefix": "> "}
	c := open(t, spec)
	if d := c.Description(); d.Name != "echo" || !d.Has(framework.KindMemory) || d.Has(framework.KindPort) {
		t.Errorf("description: got %+v", d)
	}
	if s := c.Schema(); len(s) != 1 || s[0].Name != "prefix" {
		t.Errorf("schema: got %v", s)
	}

	const n = 70 // more than one message of descriptors
	shares := make([]framework.Share, n)
	for i := range shares {
		fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(fd), "test")
		defer f.Close()
		fmt.Fprint(f, i)
		shares[i] = framework.Share{Kind: framework.ShareMemFD, FD: f}
	}
	check := func(got []framework.Share) {
		t.Helper()
		if len(got) != n {
			t.Fatalf("got %d shares, expected %d", len(got), n)
		}
		for i, s := range got {
			if b, err := io.ReadAll(io.NewSectionReader(s.FD, 0, 9)); err != nil || string(b) != fmt.Sprint(i) {
				t.Errorf("share %d: got %q, %v", i, b, err)
			}
		}
	}
	r, err := c.Register(t.Context(), framework.Segment{Bytes: 1, Shares: shares})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Key.Close()
	check(r.Key.Shares)
	if string(r.Key.Data) != "> key" {
		t.Errorf("data: got %q, expected the option's prefix", r.Key.Data)
	}
	e, err := c.Listen(t.Context(), framework.EndpointConfig{Kind: framework.KindMemory, Facts: framework.Facts{Host: "h"}})
	if err != nil || len(e.Reach) != 1 || e.Reach[0] != "host:h" {
		t.Errorf("listen: got %+v, %v", e, err)
	}
	conn, err := c.Connect(t.Context(), e.ID, []framework.Peer{{Rank: 1, Address: e.Address}})
	if err != nil {
		t.Fatal(err)
	}
	a, err := c.Attach(t.Context(), conn, r.ID, []framework.Parcel{r.Key})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	check(a.Mappings[0].Shares)
	if len(a.Steps) != 1 || a.Steps[0].Op != framework.StepMap {
		t.Errorf("steps: got %+v", a.Steps)
	}

	_, err = c.Listen(t.Context(), framework.EndpointConfig{Kind: framework.KindPort})
	if !errors.Is(err, framework.ErrUnsupported) || err.Error() != "echo listen: memory channels only: unsupported" {
		t.Errorf("port: got %v", err)
	}
	if _, err = c.Register(t.Context(), framework.Segment{Shares: shares}); !errors.Is(err, framework.ErrInvalid) {
		t.Errorf("no bytes: got %v, expected ErrInvalid", err)
	}
	// Calls that the plugin does not have at all.
	if _, err = c.NewProxy(t.Context()); !errors.Is(err, framework.ErrUnsupported) {
		t.Errorf("proxy: got %v, expected ErrUnsupported", err)
	}
	if _, err = c.Image(t.Context(), "x"); !errors.Is(err, framework.ErrUnsupported) {
		t.Errorf("image: got %v, expected ErrUnsupported", err)
	}
	c.Shutdown()
	if !strings.Contains(log.String(), `msg=configured plugin=echo device_abi=1 layouts=[] prefix="> "`) {
		t.Errorf("the log lacks the plugin's line:\n%s", log)
	}
}

func TestPythonObjectsToOptions(t *testing.T) {
	noneLeft(t)
	spec, _ := python(t)
	spec.Options = map[string]any{"perfix": ""}
	_, err := Open(t.Context(), spec)
	if !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), `unknown option "perfix": expected prefix`) {
		t.Errorf("got %v, expected the plugin's ErrInvalid", err)
	}
}

func TestPythonEnds(t *testing.T) {
	spec, _ := python(t)
	c := open(t, spec)
	watch := promise.Begin()
	if err := unix.Kill(c.PID(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	happens(t, c.Gone(), "Gone")
	if err := watch.Kept(deathBound); err != nil {
		t.Errorf("the host learned %v that its plugin was killed", err)
	}
	c = open(t, spec)
	watch = promise.Begin()
	c.Shutdown()
	if err := watch.Kept(exitBound); err != nil {
		t.Errorf("shutdown %v: the plugin did not see the end of the control socket", err)
	}
}
