package protocoltest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/mscclpp-go/mscclpp/framework/transporttest"
	pb "github.com/mscclpp-go/mscclpp/plugins/proto"
)

func (s *suite) callTests() []transporttest.Test {
	return []transporttest.Test{
		{Name: "calls/schema", Rule: "Schema answers before Configure, and as Configure does.", Body: s.schema},
		{Name: "calls/configure-first", Rule: "Calls before Configure, and a second Configure, are invalid.", Body: s.configureFirst},
		{Name: "calls/unknown-options", Rule: "An unknown option is invalid, and the error names the nearest one.", Body: s.unknownOptions},
		{Name: "calls/options-as-text", Rule: "Every option is accepted as a string, as variables of the environment have it.", Body: s.optionsAsText},
		{Name: "calls/option-values", Rule: "A value that is not of the option's type is invalid, and the error names the option.", Body: s.optionValues},
		{Name: "calls/options-object", Rule: "Options that are no JSON object are invalid.", Body: s.optionsObject},
		{Name: "calls/unknown-fields", Rule: "Fields of a message that the plugin does not know are ignored.", Body: s.unknownFields},
		{Name: "calls/unknown-values", Rule: "Values of enumerations that the plugin does not know are invalid.", Body: s.unknownValues},
		{Name: "calls/large-messages", Rule: "Messages of 64 MiB are accepted.", Body: s.largeMessages},
		{Name: "calls/errors", Rule: "A call fails with the status code of a class, and the Failure beside it agrees.", Body: s.errors},
		{Name: "calls/image-pieces", Rule: "An image comes in pieces of at most 1 MiB.", Body: s.imagePieces},
	}
}

func (s *suite) schema(t transporttest.TB) {
	h := s.connected(t)
	ctx, cancel := h.bounded()
	defer cancel()
	first, err := h.client.Schema(ctx, &pb.SchemaRequest{})
	if err != nil {
		t.Fatalf("schema before configure: %v%s", err, h.said())
	}
	answer, err := h.client.Configure(ctx, &pb.ConfigureRequest{Options: s.options()})
	if err != nil {
		t.Fatalf("configure: %v%s", err, h.said())
	}
	if !proto.Equal(first, &pb.SchemaResponse{Options: answer.GetOptions()}) {
		t.Errorf("Schema lists %v, and Configure %v", first.GetOptions(), answer.GetOptions())
	}
	again, err := h.client.Describe(ctx, &pb.DescribeRequest{})
	if err != nil || !proto.Equal(again.GetDescription(), answer.GetDescription()) {
		t.Errorf("Describe answers %v, %v, and Configure %v", again.GetDescription(), err, answer.GetDescription())
	}
}

// wants checks the class of a failed call.
func wants(t transporttest.TB, what string, err error, allowed ...codes.Code) {
	code := status.Code(err)
	for _, c := range allowed {
		if code == c {
			return
		}
	}
	if err == nil {
		t.Errorf("%s: accepted; want status %v", what, allowed)
		return
	}
	t.Errorf("%s: %v; want status %v", what, err, allowed)
}

func (s *suite) configureFirst(t transporttest.TB) {
	h := s.connected(t)
	ctx, cancel := h.bounded()
	defer cancel()
	_, err := h.client.Describe(ctx, &pb.DescribeRequest{})
	wants(t, "describe before configure", err, codes.InvalidArgument)
	_, err = h.client.Close(ctx, &pb.CloseRequest{Id: 1})
	wants(t, "close before configure", err, codes.InvalidArgument)
	h.configure(t, s.launcher)
	_, err = h.client.Configure(ctx, &pb.ConfigureRequest{Options: s.options()})
	wants(t, "a second configure", err, codes.InvalidArgument)
}

// refuses makes a plugin that is not configured refuse options, and returns what it says.
func (s *suite) refuses(t transporttest.TB, h *host, options string) string {
	ctx, cancel := h.bounded()
	defer cancel()
	_, err := h.client.Configure(ctx, &pb.ConfigureRequest{Options: []byte(options)})
	wants(t, "configure with "+options, err, codes.InvalidArgument)
	return status.Convert(err).Message()
}

func (s *suite) unknownOptions(t transporttest.TB) {
	h := s.connected(t)
	ctx, cancel := h.bounded()
	defer cancel()
	schema, err := h.client.Schema(ctx, &pb.SchemaRequest{})
	if err != nil {
		t.Fatalf("schema: %v%s", err, h.said())
	}
	if text := s.refuses(t, h, `{"no_such_option_at_all":1}`); !strings.Contains(text, "no_such_option_at_all") {
		t.Errorf("the error %q does not name the option", text)
	}
	for _, o := range schema.GetOptions() {
		name := o.GetName()
		if len(name) < 4 || strings.ContainsAny(name, ".*<[") {
			continue // of a table
		}
		wrong := name[:2] + name[1:] // a letter twice
		if text := s.refuses(t, h, `{"`+wrong+`":1}`); !strings.Contains(text, name) {
			t.Errorf("the error %q does not say that %q may mean %q", text, wrong, name)
		}
		break
	}
	h.configure(t, s.launcher) // refused options leave nothing behind
}

// optionsAsText hands every option its default as a string.
func (s *suite) optionsAsText(t transporttest.TB) {
	h := s.connected(t)
	ctx, cancel := h.bounded()
	defer cancel()
	schema, err := h.client.Schema(ctx, &pb.SchemaRequest{})
	if err != nil {
		t.Fatalf("schema: %v%s", err, h.said())
	}
	tree := map[string]any{}
	if err := json.Unmarshal(s.options(), &tree); err != nil {
		t.Fatalf("options of the program: %v", err)
	}
	for _, o := range schema.GetOptions() {
		if o.GetDefaultValue() != "" && !strings.HasPrefix(o.GetType(), "table") {
			put(tree, strings.Split(o.GetName(), "."), o.GetDefaultValue())
		}
	}
	options, err := json.Marshal(tree)
	if err != nil {
		t.Fatalf("options: %v", err)
	}
	if _, err := h.client.Configure(ctx, &pb.ConfigureRequest{Options: options}); err != nil {
		t.Errorf("configure with the defaults as strings, %s: %v", options, err)
	}
}

// optionValues hands words to options that are none.
func (s *suite) optionValues(t transporttest.TB) {
	h := s.connected(t)
	ctx, cancel := h.bounded()
	defer cancel()
	schema, err := h.client.Schema(ctx, &pb.SchemaRequest{})
	if err != nil {
		t.Fatalf("schema: %v%s", err, h.said())
	}
	for _, o := range schema.GetOptions() {
		if !slices.Contains([]string{"bool", "int", "uint", "float", "duration"}, o.GetType()) || strings.ContainsAny(o.GetName(), ".*<[") {
			continue
		}
		trailer := metadata.MD{}
		options := `{"` + o.GetName() + `":"certainly not"}`
		_, err := h.client.Configure(ctx, &pb.ConfigureRequest{Options: []byte(options)}, grpc.Trailer(&trailer))
		wants(t, "configure with "+options, err, codes.InvalidArgument)
		if !strings.Contains(status.Convert(err).Message(), o.GetName()) {
			t.Errorf("the error %q does not name the option %q", status.Convert(err).Message(), o.GetName())
		}
		f := &pb.Failure{}
		if values := trailer.Get("mscclpp-failure-bin"); len(values) > 0 && proto.Unmarshal([]byte(values[0]), f) == nil && f.GetOption() != "" && f.GetOption() != o.GetName() {
			t.Errorf("the failure blames option %q, the value was that of %q", f.GetOption(), o.GetName())
		}
	}
	h.configure(t, s.launcher)
}

// put sets the value of a nested key, unless there is one.
func put(tree map[string]any, keys []string, value string) {
	for len(keys) > 1 {
		next, ok := tree[keys[0]].(map[string]any)
		if !ok {
			next = map[string]any{}
			tree[keys[0]] = next
		}
		tree, keys = next, keys[1:]
	}
	if _, there := tree[keys[0]]; !there {
		tree[keys[0]] = value
	}
}

func (s *suite) optionsObject(t transporttest.TB) {
	h := s.connected(t)
	for _, options := range []string{"[]", "7", `"x"`, "{", "{} {}", "\x00"} {
		s.refuses(t, h, options)
	}
	h.configure(t, s.launcher)
}

// listen is a request for a link of a kind that the description claims.
func (h *host) listen(kind pb.Kind) *pb.ListenRequest {
	return &pb.ListenRequest{
		Call: h.next(), Kind: kind, Rank: 0, Ranks: []int32{0, 1}, Group: "conformance", Device: &pb.Device{Type: "host"},
		Facts: &pb.Facts{Host: "conformance", Numa: -1}, Bytes: 1 << 16,
	}
}

func (s *suite) unknownFields(t transporttest.TB) {
	h, d := s.configured(t)
	ctx, cancel := h.bounded()
	defer cancel()
	later := protowire.AppendTag(nil, 4000, protowire.BytesType)
	later = protowire.AppendString(later, "from a later version")
	plain, err := h.client.Listen(ctx, h.listen(d.GetChannels()[0]))
	request := h.listen(d.GetChannels()[0])
	request.ProtoReflect().SetUnknown(later)
	with, other := h.client.Listen(ctx, request)
	if status.Code(err) != status.Code(other) {
		t.Errorf("listen answers %v, and with a field of a later version %v", err, other)
	}
	for _, id := range []uint64{plain.GetId(), with.GetId()} {
		if id != 0 {
			_, _ = h.client.Close(ctx, &pb.CloseRequest{Id: id}) // its own test is elsewhere
		}
	}
}

func (s *suite) unknownValues(t transporttest.TB) {
	h, _ := s.configured(t)
	ctx, cancel := h.bounded()
	defer cancel()
	for _, kind := range []pb.Kind{0, 77, 257, -1} {
		_, err := h.client.Listen(ctx, h.listen(kind))
		wants(t, "listen for a link of kind "+kind.String(), err, codes.InvalidArgument)
	}
}

func (s *suite) largeMessages(t transporttest.TB) {
	h, _ := s.configured(t)
	ctx, cancel := h.bounded()
	defer cancel()
	_, err := h.client.Register(ctx, &pb.RegisterRequest{Call: h.next(), Segment: &pb.Segment{
		Device: &pb.Device{Type: "host"}, Bytes: 1, Shares: []*pb.Share{{Kind: "local", Blob: make([]byte, maxMessage-(1<<16))}},
	}})
	wants(t, "register with a blob of nearly 64 MiB", err, codes.InvalidArgument, codes.Unimplemented, codes.FailedPrecondition)
}

// classes are the codes that a plugin may fail with, and the names of the classes.
var classes = map[codes.Code]struct {
	class pb.ErrorClass
	name  string
}{
	codes.FailedPrecondition: {pb.ErrorClass_ERROR_CLASS_UNAVAILABLE, "unavailable"},
	codes.Unimplemented:      {pb.ErrorClass_ERROR_CLASS_UNSUPPORTED, "unsupported"},
	codes.InvalidArgument:    {pb.ErrorClass_ERROR_CLASS_INVALID, "invalid"},
	codes.Aborted:            {pb.ErrorClass_ERROR_CLASS_PEER, "peer"},
	codes.NotFound:           {pb.ErrorClass_ERROR_CLASS_CLOSED, "closed"},
}

// errors looks at the errors of calls that cannot succeed.
func (s *suite) errors(t transporttest.TB) {
	h, d := s.configured(t)
	calls := map[string]func(ctx context.Context, o grpc.CallOption) error{
		"register no bytes": func(ctx context.Context, o grpc.CallOption) error {
			_, err := h.client.Register(ctx, &pb.RegisterRequest{Call: h.next(), Segment: &pb.Segment{Device: &pb.Device{Type: "host"}}}, o)
			return err
		},
		"listen for kind 77": func(ctx context.Context, o grpc.CallOption) error {
			_, err := h.client.Listen(ctx, h.listen(77), o)
			return err
		},
		"connect an unknown id": func(ctx context.Context, o grpc.CallOption) error {
			_, err := h.client.Connect(ctx, &pb.ConnectRequest{Call: h.next(), Local: 1 << 60}, o)
			return err
		},
		"attach to an unknown id": func(ctx context.Context, o grpc.CallOption) error {
			_, err := h.client.Attach(ctx, &pb.AttachRequest{Call: h.next(), Conn: 1 << 60}, o)
			return err
		},
		"start an unknown proxy": func(ctx context.Context, o grpc.CallOption) error {
			_, err := h.client.StartProxy(ctx, &pb.StartProxyRequest{Call: h.next(), Proxy: 1 << 60}, o)
			return err
		},
	}
	for what, call := range calls {
		ctx, cancel := h.bounded()
		trailer := metadata.MD{}
		err := call(ctx, grpc.Trailer(&trailer))
		cancel()
		h.checkError(what, d, err, trailer)
	}
}

func (h *host) checkError(what string, d *pb.Description, err error, trailer metadata.MD) {
	if err == nil {
		h.t.Errorf("%s: accepted", what)
		return
	}
	class, known := classes[status.Code(err)]
	if !known {
		h.t.Errorf("%s: status %v, which stands for no class of error: %v", what, status.Code(err), err)
		return
	}
	values := trailer.Get("mscclpp-failure-bin")
	if len(values) == 0 {
		return // the status says enough
	}
	f := &pb.Failure{}
	if err := proto.Unmarshal([]byte(values[0]), f); err != nil {
		h.t.Errorf("%s: the failure cannot be read: %v", what, err)
		return
	}
	if f.GetClass() != class.class || !strings.Contains(f.GetMessage(), class.name) {
		h.t.Errorf("%s: status %v with a failure of class %v and the message %q: want one class, and its name in the message", what, status.Code(err), f.GetClass(), f.GetMessage())
	}
	for _, b := range f.GetBlames() {
		if b.GetOp() == "" || b.GetTransport() != d.GetName() || b.GetPeer() < -1 {
			h.t.Errorf("%s: the failure blames %v: want an operation of %s, and a rank or -1", what, b, d.GetName())
		}
	}
}

func (s *suite) imagePieces(t transporttest.TB) {
	h, d := s.configured(t)
	for _, image := range d.GetImages()[:min(1, len(d.GetImages()))] {
		ctx, cancel := h.bounded()
		defer cancel()
		stream, err := h.client.Image(ctx, &pb.ImageRequest{Id: image.GetId()})
		for err == nil {
			var piece *pb.ImageResponse
			if piece, err = stream.Recv(); len(piece.GetData()) > 1<<20 {
				t.Errorf("image %s comes in a piece of %d bytes: want 1 MiB at most", image.GetId(), len(piece.GetData()))
			}
		}
		if !errors.Is(err, io.EOF) && status.Code(err) != codes.FailedPrecondition { // to be built on this machine
			t.Errorf("image %s: %v", image.GetId(), err)
		}
	}
}
