package transportpb

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
)

// TestGeneratedCodeIsCurrent compares the committed code with transport.proto.
func TestGeneratedCodeIsCurrent(t *testing.T) {
	protoc, err := exec.LookPath("protoc")
	if err != nil {
		t.Skip("protoc is not installed")
	}
	out := filepath.Join(t.TempDir(), "set")
	if text, err := exec.Command(protoc, "--proto_path=.", "--descriptor_set_out="+out, "transport.proto").CombinedOutput(); err != nil {
		t.Fatalf("protoc: %v: %s", err, text)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(data, &set); err != nil {
		t.Fatal(err)
	}
	committed := protodesc.ToFileDescriptorProto(File_transport_proto)
	if !proto.Equal(committed, set.GetFile()[0]) {
		t.Errorf("transport.pb.go differs from transport.proto; run plugins/proto/generate.sh\n%s", prototext.Format(committed))
	}
}
