package protocoltest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/mscclpp-go/mscclpp/plugins/proto"
)

// miniPlugin is a plugin that was written from docs/plugin-protocol.md alone, with one
// flaw or none. It hands registered memory back as its key and does nothing with it.
func miniPlugin(flaw string) int {
	if os.Getenv("MSCCLPP_TRANSPORT_PLUGIN") != "2f0e9c55-1f6b-4f0c-9b51-6d1b4a2f7c3e" {
		if flaw == "runs-for-anybody" {
			return 0
		}
		fmt.Fprintln(os.Stderr, "a transport plugin, started by a job")
		return 2
	}
	if exe, _ := os.Executable(); flaw == "looks-beside-itself" {
		if _, err := os.Stat(exe); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	out := os.Stdout
	if flaw != "keeps-stdout" {
		moved, _ := unix.FcntlInt(1, unix.F_DUPFD_CLOEXEC, 10)
		_ = unix.Dup3(2, 1, 0)
		out = os.NewFile(uintptr(moved), "handshake")
	}
	m := &mini{flaw: flaw, calls: newHeld(flaw)}
	m.handleSignals()
	if flaw != "inheritable" {
		unix.CloseOnExec(3)
	}
	_ = unix.SetsockoptInt(3, unix.SOL_SOCKET, unix.SO_PASSCRED, 1)
	path := filepath.Join(os.Getenv("PLUGIN_UNIX_SOCKET_DIR"), "mini")
	if flaw == "socket-elsewhere" {
		path = filepath.Join(os.Getenv("PLUGIN_UNIX_SOCKET_DIR")+"-mini", "mini")
		_ = os.Mkdir(filepath.Dir(path), 0o700)
		defer os.RemoveAll(filepath.Dir(path))
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if flaw == "chatty" {
		fmt.Fprintln(out, "hello from a library")
	}
	version := 1
	if flaw == "newest-version" && strings.Contains(os.Getenv("PLUGIN_PROTOCOL_VERSIONS"), "2") {
		version = 2
	}
	size := 64 << 20
	if flaw == "small-messages" {
		size = 4 << 20
	}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(size))
	pb.RegisterTransportServiceServer(server, m)
	go func() { _ = server.Serve(listener) }()
	if flaw == "deaf" && os.Getenv("MSCCLPP_PLUGIN_CONNECTION_FD") != "" {
		path = "inherited"
	}
	fmt.Fprintf(out, "1|%d|unix|%s|grpc\n", version, path)
	m.receive()
	if flaw == "outlives-host" || flaw == "ends-after-calls" && m.calls.waiting() {
		select {}
	}
	if flaw != "leaves-socket" {
		os.Remove(path)
	}
	if flaw == "socket-elsewhere" {
		os.RemoveAll(filepath.Dir(path))
	}
	if flaw == "ends-badly" {
		return 3
	}
	return 0
}

type mini struct {
	pb.UnimplementedTransportServiceServer
	flaw  string
	calls *held

	mu         sync.Mutex
	configured bool
	last       uint64 // id
	sent       uint64 // number of a descriptor
}

func (m *mini) handleSignals() {
	all := map[os.Signal]string{unix.SIGTERM: "ends-by-sigterm", unix.SIGINT: "ends-by-sigint", unix.SIGPIPE: "ends-by-sigpipe"}
	signals := make(chan os.Signal, 4)
	for s, flaw := range all {
		if m.flaw == flaw || s == unix.SIGTERM {
			signal.Notify(signals, s)
		} else {
			signal.Ignore(s)
		}
	}
	host := os.Getppid()
	go func() {
		for s := range signals {
			if all[s] == m.flaw {
				fmt.Fprintln(os.Stderr, "ended by", s)
				os.Exit(1)
			}
			if os.Getppid() != host && m.flaw != "outlives-parent" {
				os.Exit(0)
			}
		}
	}()
}

// refuse fails a call.
func (m *mini) refuse(ctx context.Context, code codes.Code, class pb.ErrorClass, name, text string) error {
	if m.flaw == "plain-errors" {
		return status.Error(codes.Internal, text)
	}
	f := &pb.Failure{Class: class, Message: text + ": " + name, Blames: []*pb.Blame{{Op: "call", Transport: "mini", Peer: -1}}}
	if m.flaw == "other-failure" {
		f.Class = pb.ErrorClass_ERROR_CLASS_PEER
	}
	b, _ := proto.Marshal(f)
	_ = grpc.SetTrailer(ctx, metadata.Pairs("mscclpp-failure-bin", string(b)))
	return status.Error(code, f.GetMessage())
}

func (m *mini) invalid(ctx context.Context, text string) error {
	return m.refuse(ctx, codes.InvalidArgument, pb.ErrorClass_ERROR_CLASS_INVALID, "invalid", text)
}

func (m *mini) ready(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.configured && m.flaw != "early-calls" {
		return m.invalid(ctx, "before configure")
	}
	return nil
}

func (m *mini) options() []*pb.Option {
	return []*pb.Option{{Name: "lines", Type: "int", DefaultValue: "4", Help: "Lines."}, {Name: "fast", Type: "bool", DefaultValue: "true", Help: "Fast."}}
}

func (m *mini) Schema(ctx context.Context, _ *pb.SchemaRequest) (*pb.SchemaResponse, error) {
	if m.flaw == "schema-late" {
		if err := m.ready(ctx); err != nil {
			return nil, err
		}
	}
	return &pb.SchemaResponse{Options: m.options()}, nil
}

func (m *mini) Configure(ctx context.Context, r *pb.ConfigureRequest) (*pb.ConfigureResponse, error) {
	if m.ready(ctx) == nil && m.flaw != "configures-twice" && m.flaw != "early-calls" {
		return nil, m.invalid(ctx, "configured twice")
	}
	var options map[string]any
	if err := json.Unmarshal(r.GetOptions(), &options); err != nil && m.flaw != "any-object" {
		return nil, m.invalid(ctx, "options: "+err.Error())
	}
	for key, value := range options {
		text, isText := value.(string)
		_, bad := strconv.Atoi(text)
		if key == "fast" {
			_, bad = strconv.ParseBool(text)
		}
		hint := `, did you mean "lines"?`
		if m.flaw == "no-hint" {
			hint = ""
		}
		switch {
		case key != "lines" && key != "fast" && m.flaw != "any-option":
			return nil, m.invalid(ctx, "unknown option "+key+hint)
		case isText && (bad != nil && m.flaw != "any-value" || m.flaw == "typed-options"):
			return nil, m.invalid(ctx, "option "+key+": not of its type")
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.configured = true
	return &pb.ConfigureResponse{Description: m.description(), Options: m.options()}, nil
}

func (m *mini) description() *pb.Description {
	return &pb.Description{Name: "mini", Version: "1.0.0", Channels: []pb.Kind{pb.Kind_KIND_MEMORY}, Signal: "direct",
		Images: []*pb.ImageInfo{{Id: "large", Family: "f"}}}
}

func (m *mini) Describe(ctx context.Context, _ *pb.DescribeRequest) (*pb.DescribeResponse, error) {
	return &pb.DescribeResponse{Description: m.description()}, m.ready(ctx)
}

func (m *mini) Listen(ctx context.Context, r *pb.ListenRequest) (*pb.ListenResponse, error) {
	switch {
	case m.flaw == "strict-fields" && len(r.ProtoReflect().GetUnknown()) > 0:
		return nil, m.invalid(ctx, "unknown field")
	case r.GetKind() != pb.Kind_KIND_MEMORY && m.flaw != "any-kind":
		return nil, m.invalid(ctx, "kind")
	}
	return &pb.ListenResponse{Id: m.id()}, m.ready(ctx)
}

func (m *mini) id() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last++
	return m.last
}

func (m *mini) Connect(ctx context.Context, _ *pb.ConnectRequest) (*pb.ConnectResponse, error) {
	return nil, m.invalid(ctx, "unknown id")
}

func (m *mini) Attach(ctx context.Context, _ *pb.AttachRequest) (*pb.AttachResponse, error) {
	return nil, m.invalid(ctx, "unknown id")
}

func (m *mini) Close(ctx context.Context, _ *pb.CloseRequest) (*pb.CloseResponse, error) {
	return &pb.CloseResponse{}, m.ready(ctx)
}

func (m *mini) Image(_ *pb.ImageRequest, stream grpc.ServerStreamingServer[pb.ImageResponse]) error {
	size := 1 << 20
	if m.flaw == "one-piece" {
		size = 3 << 20
	}
	return stream.Send(&pb.ImageResponse{Data: make([]byte, size)})
}

func (m *mini) Register(ctx context.Context, r *pb.RegisterRequest) (*pb.RegisterResponse, error) {
	if m.flaw != "keeps-descriptors" {
		defer m.calls.end(r.GetCall())
	}
	var fds []int
	for _, share := range r.GetSegment().GetShares() {
		if share.GetFd() == 0 {
			return nil, m.invalid(ctx, "a share of kind "+share.GetKind())
		}
		fd, err := m.calls.claim(ctx, r.GetCall(), share.GetFd())
		if err != nil {
			return nil, m.refuse(ctx, codes.FailedPrecondition, pb.ErrorClass_ERROR_CLASS_UNAVAILABLE, "unavailable", err.Error())
		}
		fds = append(fds, fd)
	}
	defer closeFDs(fds)
	if r.GetSegment().GetBytes() == 0 {
		return nil, m.invalid(ctx, "0 bytes")
	}
	resp := &pb.RegisterResponse{Id: m.id(), Key: &pb.Parcel{Data: []byte("key")}}
	for _, fd := range fds[:min(1, len(fds))] {
		call := r.GetCall()
		if m.flaw == "other-call" {
			call++
		}
		resp.Key.Shares = []*pb.Share{{Kind: "memfd", Fd: m.send(call, fd)}}
	}
	return resp, m.ready(ctx)
}

// send hands a descriptor to the host.
func (m *mini) send(call uint64, fd int) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.flaw != "same-numbers" || m.sent == 0 {
		m.sent++
	}
	_ = unix.Sendmsg(3, head(1, 1, call, m.sent), unix.UnixRights(fd), nil, 0)
	return m.sent
}

func closeFDs(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// arrivalBound is how long a call waits for its descriptors.
const arrivalBound = 10 * time.Second
