package wire

import (
	"github.com/mscclpp-go/mscclpp/framework"
	pb "github.com/mscclpp-go/mscclpp/plugins/proto"
)

func liveOut(l framework.Live) *pb.ProbeResponse {
	return &pb.ProbeResponse{
		Available: l.Available, Reason: l.Reason, Facts: l.Facts, WholeLines: l.WholeLines, LinksKnown: l.LinksKnown, Links: linksOut(l.Links),
	}
}

func liveIn(resp *pb.ProbeResponse) framework.Live {
	return framework.Live{
		Available: resp.GetAvailable(), Reason: resp.GetReason(), Facts: resp.GetFacts(), WholeLines: resp.GetWholeLines(), LinksKnown: resp.GetLinksKnown(), Links: linksIn(resp.GetLinks()),
	}
}

func linksOut(list []framework.DeviceLink) (out []*pb.DeviceLink) {
	for _, x := range list {
		out = append(out, &pb.DeviceLink{
			Peer: x.Peer, Count: uint32(max(0, x.Count)), Version: uint32(max(0, x.Version)), ThroughSwitch: x.Switch,
			Kind: x.Kind, Rate: x.Rate, Latency: x.Latency,
		})
	}
	return out
}

func linksIn(list []*pb.DeviceLink) (in []framework.DeviceLink) {
	for _, x := range list {
		in = append(in, framework.DeviceLink{
			Peer: x.GetPeer(), Count: int(x.GetCount()), Version: int(x.GetVersion()), Switch: x.GetThroughSwitch(),
			Kind: x.GetKind(), Rate: x.GetRate(), Latency: x.GetLatency(),
		})
	}
	return in
}
