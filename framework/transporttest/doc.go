// Package transporttest is the conformance suite: what every transport has to do, written as tests.
// There is one suite, and a transport's description drives it. Claims are tested; an operation that
// is not claimed must fail with ErrUnsupported. There is no list of tests to skip.
//
// Under go test a caller is a few lines:
//
//	func TestConformance(t *testing.T) {
//		transporttest.Run(t, func(t testing.TB) *transporttest.Side {
//			transport, err := shm.New(shm.Config{})
//			if err != nil {
//				t.Fatal(err)
//			}
//			return transporttest.Embedded(transport)
//		})
//	}
//
// The same tests run at three distances: on the transport itself, on the
// transport behind a real gRPC pair (plugins/plugintest), and on a separate
// process (plugins.Open), which adds the tests that kill it. Outside go test,
// Suite returns a Report; mscclpp-run conform prints it.
//
// The suite plays both parts of a job. It is every rank, each with a side of its
// own, and it is the kernel: it stores to, loads from and waits on the memory that
// the recipes made addressable, with the ordering rules of the device headers.
//
// A known defect is named in Options.Known together with the reason. It must then
// fail: a known defect that passes fails the suite, so that the list cannot rot.
package transporttest
