// Package vendorpython_test runs the plugin in Python: the conformance suite as a
// separate process, and a job that knows of it by its configuration alone.
package vendorpython_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework/transporttest"
	"github.com/mscclpp-go/mscclpp/plugins"
	"github.com/mscclpp-go/mscclpp/plugins/protocoltest"
)

const name = "mscclpp-transport-pymem"

// built puts the plugin into a folder, as its README says.
func built(t *testing.T, dir string) string {
	t.Helper()
	if _, err := exec.LookPath("protoc"); err != nil {
		t.Skip("needs protoc")
	}
	if err := exec.CommandContext(t.Context(), "/usr/bin/python3", "-c", "import grpc, google.protobuf").Run(); err != nil {
		t.Skip("needs gRPC for /usr/bin/python3")
	}
	sources, err := filepath.Glob("*.py")
	if err != nil {
		t.Fatal(err)
	}
	// Go keeps results of tests for as long as the files are the same that this process
	// opens. Other processes read these.
	for _, file := range append(sources, name, "build.sh", "../../plugins/proto/transport.proto") {
		if _, err := os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := exec.CommandContext(t.Context(), "./build.sh", dir).CombinedOutput(); err != nil {
		t.Fatalf("build: %v: %s", err, text)
	}
	return filepath.Join(dir, name)
}

func TestConformance(t *testing.T) {
	path := built(t, t.TempDir())
	more := func(o *transporttest.Options) {
		o.More = protocoltest.Tests(protocoltest.Program{Path: path, CallLimit: 10 * time.Second})
		o.TestLimit, o.CallLimit = 2*time.Minute, 20*time.Second // a start of Python is not quick
	}
	transporttest.Run(t, func(t testing.TB) *transporttest.Side {
		c, err := plugins.Open(t.Context(), plugins.Spec{Name: "pymem", Path: path, StartTimeout: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		return transporttest.External(c)
	}, more)
}

// TestJob runs a program that does not know the transport, with job.yaml alone.
func TestJob(t *testing.T) {
	dir := t.TempDir()
	built(t, filepath.Join(dir, "out"))
	for _, program := range []string{"../../cmd/mscclpp-run", "../pingpong"} {
		if text, err := exec.CommandContext(t.Context(), "go", "build", "-o", dir+"/", program).CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v\n%s", program, err, text)
		}
	}
	config, err := os.ReadFile("job.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "job.yaml"), config, 0o644); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), "./mscclpp-run", "--standalone", "--config", "job.yaml", "--log-level", "debug", "-n", "2", "./pingpong")
	c.Dir = dir
	text, err := c.CombinedOutput()
	if n := strings.Count(string(text), "kind=port transport=pymem"); err != nil || n != 2 {
		t.Errorf("%v; %d ranks say that their port channel goes through pymem, want 2:\n%s", err, n, text)
	}
}
