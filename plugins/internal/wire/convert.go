package wire

import (
	"github.com/mscclpp-go/mscclpp/framework"
	pb "github.com/mscclpp-go/mscclpp/plugins/proto"
)

func kindsOut(in []framework.Kind) []pb.Kind {
	out := make([]pb.Kind, len(in))
	for i, k := range in {
		out[i] = pb.Kind(k)
	}
	return out
}

func kindsIn(in []pb.Kind) []framework.Kind {
	var out []framework.Kind
	for _, k := range in {
		out = append(out, enum[framework.Kind](k))
	}
	return out
}

// enum narrows an enum value of the wire. A value that does not fit becomes 0, which no enum of the
// contract uses, so that its reader rejects it.
func enum[T ~uint8, E ~int32](e E) T {
	if e < 0 || e > 255 {
		return 0
	}
	return T(e)
}

// DescriptionOut converts a description for the wire.
func DescriptionOut(d framework.Description) *pb.Description {
	m := &pb.Description{
		Name: d.Name, Version: d.Version, Channels: kindsOut(d.Channels),
		Signal: string(d.Signal), Proxy: string(d.Proxy), Probe: d.Probe, Streams: d.Streams, Links: i32(d.Links),
	}
	for _, n := range d.Needs {
		m.Needs = append(m.Needs, string(n))
	}
	for _, k := range d.Kernels {
		m.Kernels = append(m.Kernels, &pb.KernelInfo{
			Collective: k.Collective, Algorithm: k.Algorithm, Symbol: k.Symbol, Family: k.Family,
			Types: k.Types, Ops: k.Ops, Channels: kindsOut(k.Channels),
			MaxRanks: i32(k.MaxRanks), MaxThreads: i32(k.MaxThreads),
		})
	}
	for _, i := range d.Images {
		m.Images = append(m.Images, &pb.ImageInfo{
			Id: i.ID, Arch: i.Arch, Family: i.Family, Type: i.Type, Abi: i.ABI, Layout: i.Layout,
			Sha256: i.SHA256, Bytes: i.Bytes,
		})
	}
	return m
}

// DescriptionIn is the inverse of DescriptionOut.
func DescriptionIn(m *pb.Description) framework.Description {
	d := framework.Description{
		Name: m.GetName(), Version: m.GetVersion(), Channels: kindsIn(m.GetChannels()),
		Signal: framework.Signal(m.GetSignal()), Proxy: framework.ProxySite(m.GetProxy()), Probe: m.GetProbe(), Streams: m.GetStreams(), Links: int(m.GetLinks()),
	}
	for _, n := range m.GetNeeds() {
		d.Needs = append(d.Needs, framework.Need(n))
	}
	for _, k := range m.GetKernels() {
		d.Kernels = append(d.Kernels, framework.KernelInfo{
			Collective: k.GetCollective(), Algorithm: k.GetAlgorithm(), Symbol: k.GetSymbol(), Family: k.GetFamily(),
			Types: k.GetTypes(), Ops: k.GetOps(), Channels: kindsIn(k.GetChannels()),
			MaxRanks: int(k.GetMaxRanks()), MaxThreads: int(k.GetMaxThreads()),
		})
	}
	for _, i := range m.GetImages() {
		d.Images = append(d.Images, framework.ImageInfo{
			ID: i.GetId(), Arch: i.GetArch(), Family: i.GetFamily(), Type: i.GetType(),
			ABI: i.GetAbi(), Layout: i.GetLayout(), SHA256: i.GetSha256(), Bytes: i.GetBytes(),
		})
	}
	return d
}

func deviceOut(d framework.Device) *pb.Device {
	return &pb.Device{Type: d.Type, Index: i32(d.Index)}
}

func deviceIn(m *pb.Device) framework.Device {
	return framework.Device{Type: m.GetType(), Index: int(m.GetIndex())}
}

func factsOut(f framework.Facts) *pb.Facts {
	m := &pb.Facts{Host: f.Host, Numa: i32(f.NUMA), Other: f.Other, LinksKnown: f.LinksKnown, Links: linksOut(f.Links)}
	for _, n := range f.NICs {
		m.Nics = append(m.Nics, &pb.NIC{Name: n.Name, Distance: n.Distance, Numa: i32(n.NUMA)})
	}
	return m
}

func factsIn(m *pb.Facts) framework.Facts {
	f := framework.Facts{Host: m.GetHost(), NUMA: int(m.GetNuma()), Other: m.GetOther(), LinksKnown: m.GetLinksKnown(), Links: linksIn(m.GetLinks())}
	for _, n := range m.GetNics() {
		f.NICs = append(f.NICs, framework.NIC{Name: n.GetName(), Distance: n.GetDistance(), NUMA: int(n.GetNuma())})
	}
	return f
}

func configOut(c framework.EndpointConfig) *pb.ListenRequest {
	m := &pb.ListenRequest{
		Kind: pb.Kind(c.Kind), Rank: i32(c.Rank), Group: c.Group, Device: deviceOut(c.Device),
		Facts: factsOut(c.Facts), Bytes: c.Bytes, Pending: i32(c.Pending),
	}
	for _, r := range c.Ranks {
		m.Ranks = append(m.Ranks, i32(r))
	}
	return m
}

func configIn(m *pb.ListenRequest) framework.EndpointConfig {
	c := framework.EndpointConfig{
		Kind: enum[framework.Kind](m.GetKind()), Rank: int(m.GetRank()), Group: m.GetGroup(), Device: deviceIn(m.GetDevice()),
		Facts: factsIn(m.GetFacts()), Bytes: m.GetBytes(), Pending: int(m.GetPending()),
	}
	for _, r := range m.GetRanks() {
		c.Ranks = append(c.Ranks, int(r))
	}
	return c
}

func objectsOut(in []framework.Object) []*pb.Object {
	var out []*pb.Object
	for _, o := range in {
		out = append(out, &pb.Object{Kind: pb.ObjectKind(o.Kind), Bytes: o.Bytes, Ranks: i32(o.Ranks)})
	}
	return out
}

func objectsIn(in []*pb.Object) []framework.Object {
	var out []framework.Object
	for _, m := range in {
		out = append(out, framework.Object{Kind: enum[framework.ObjectKind](m.GetKind()), Bytes: m.GetBytes(), Ranks: int(m.GetRanks())})
	}
	return out
}

func (p *packer) attachment(a framework.Attachment) *pb.AttachResponse {
	out := &pb.AttachResponse{Id: uint64(a.ID)}
	for _, m := range a.Mappings {
		out.Mappings = append(out.Mappings, &pb.Mapping{
			Role: pb.Role(m.Role), Peer: i32(m.Peer), Shares: p.sharesOf(m.Shares), Offset: m.Offset, Bytes: m.Bytes,
		})
	}
	for _, s := range a.Steps {
		step := &pb.Step{
			Op: pb.StepOp(s.Op), Mapping: i32(s.Mapping), Object: i32(s.Object), Slot: i32(s.Slot),
			Offset: s.Offset, Bytes: s.Bytes,
		}
		if s.Share != nil {
			step.Share = p.share(*s.Share)
		}
		out.Steps = append(out.Steps, step)
	}
	return out
}

func (o *opener) attachment(m *pb.AttachResponse) framework.Attachment {
	a := framework.Attachment{ID: framework.ID(m.GetId())}
	for _, v := range m.GetMappings() {
		a.Mappings = append(a.Mappings, framework.Mapping{
			Role: enum[framework.Role](v.GetRole()), Peer: int(v.GetPeer()), Shares: o.sharesOf(v.GetShares()),
			Offset: v.GetOffset(), Bytes: v.GetBytes(),
		})
	}
	for _, v := range m.GetSteps() {
		s := framework.Step{
			Op: enum[framework.StepOp](v.GetOp()), Mapping: int(v.GetMapping()), Object: int(v.GetObject()),
			Slot: int(v.GetSlot()), Offset: v.GetOffset(), Bytes: v.GetBytes(),
		}
		if v.GetShare() != nil {
			share := o.share(v.GetShare())
			s.Share = &share
		}
		a.Steps = append(a.Steps, s)
	}
	return a
}
