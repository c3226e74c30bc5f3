// SPDX-License-Identifier: Apache-2.0

package bridge

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"themis/bridge/pb"
)

const (
	readMethod  = pb.Read_Get_FullMethodName
	protocolKey = "themis-protocol"
	// messageMost bounds a snapshot: 10,000 jobs take about 3 MiB.
	messageMost = 256 << 20
)

// Core is what a server serves. Its methods may be called at the same time.
type Core interface {
	// Observe answers a host's snapshot with what the host should do.
	Observe(context.Context, *pb.Snapshot) (*pb.Directives, error)
	// View answers a query with JSON of the types in view.go. The uid is the
	// caller's, as the kernel knows it.
	View(ctx context.Context, uid uint32, v *pb.View) ([]byte, error)
}

// Launched says whether this process was started by a host's shim, and by
// which uid's daemon.
func Launched() (owner uint32, ok bool) {
	if os.Getenv(Handshake.MagicCookieKey) != Handshake.MagicCookieValue {
		return 0, false
	}
	uid, err := strconv.ParseUint(os.Getenv(ownerEnv), 10, 32)
	return uint32(uid), err == nil
}

// ServeLaunched speaks to the shim that started this process, over go-plugin,
// until the shim hangs up.
func ServeLaunched(core Core, owner uint32) {
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig: Handshake,
		Plugins:         plugin.PluginSet{"host": &hostPlugin{core: core}},
		GRPCServer:      func(opts []grpc.ServerOption) *grpc.Server { return newServer([]uint32{owner}, opts) },
		Logger:          hclog.NewNullLogger(),
	})
}

// Listen makes the core's own socket: for the themis command, and for a shim
// that attaches. The folder must belong to root or us; a stale socket of ours
// is replaced, anything else at the path is refused.
func Listen(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("socket folder: %w", err)
	}
	if err := ownFolder(filepath.Dir(path)); err != nil {
		return nil, err
	}
	if st, err := os.Lstat(path); err == nil {
		if st.Mode()&os.ModeSocket == 0 {
			return nil, fmt.Errorf("socket %s: a file that is no socket is in the way", path)
		}
		if conn, err := net.Dial("unix", path); err == nil {
			conn.Close()
			return nil, fmt.Errorf("socket %s: another core listens there", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("stale socket: %w", err)
		}
	}
	lis, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	// Anyone may connect; what each may call is decided by who it is.
	if err := os.Chmod(path, 0o666); err != nil {
		lis.Close()
		return nil, err
	}
	return lis, nil
}

// ownFolder refuses a folder in which somebody else could put a socket of theirs.
func ownFolder(dir string) error {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return fmt.Errorf("socket folder %s: %w", dir, err)
	}
	if st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("socket folder %s belongs to uid %d: it must be root's or uid %d's", dir, st.Uid, os.Geteuid())
	}
	return nil
}

// NewServer makes the server for a Listen socket; the caller runs Serve on it. The
// owners are the uids of the host daemons that may observe, besides root.
func NewServer(core Core, owners []uint32) *grpc.Server {
	s := newServer(owners, nil)
	register(s, core)
	return s
}

func newServer(owners []uint32, opts []grpc.ServerOption) *grpc.Server {
	return grpc.NewServer(append(opts,
		grpc.Creds(peerCreds{}),
		grpc.MaxRecvMsgSize(messageMost),
		grpc.MaxSendMsgSize(messageMost),
		grpc.UnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (resp any, err error) {
			defer func() {
				if r := recover(); r != nil {
					resp, err = nil, status.Errorf(codes.Internal, "%s: panic: %v", info.FullMethod, r)
				}
			}()
			if err := guard(ctx, info.FullMethod, owners); err != nil {
				return nil, err
			}
			return next(ctx, req)
		}),
		grpc.StreamInterceptor(func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			if err := guard(ss.Context(), info.FullMethod, owners); err != nil {
				return err
			}
			return next(srv, ss)
		}))...)
}

func register(s *grpc.Server, core Core) {
	pb.RegisterHostServer(s, hostServer{core: core})
	pb.RegisterReadServer(s, readServer{core: core})
}

type hostServer struct {
	pb.UnimplementedHostServer
	core Core
}

func (s hostServer) Observe(ctx context.Context, snap *pb.Snapshot) (*pb.Directives, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	if v := md.Get(protocolKey); len(v) != 1 || v[0] != strconv.Itoa(Protocol) {
		return nil, status.Errorf(codes.FailedPrecondition, "the shim speaks protocol %v, this core speaks %d: install both from one release", v, Protocol)
	}
	return s.core.Observe(ctx, snap)
}

type readServer struct {
	pb.UnimplementedReadServer
	core Core
}

func (s readServer) Get(ctx context.Context, v *pb.View) (*pb.Answer, error) {
	uid, _ := Caller(ctx)
	json, err := s.core.View(ctx, uid, v)
	if err != nil {
		return nil, err
	}
	return &pb.Answer{Json: json}, nil
}

// hostPlugin is the go-plugin face of the services.
type hostPlugin struct {
	plugin.NetRPCUnsupportedPlugin
	core Core // on the server's side
}

func (p *hostPlugin) GRPCServer(_ *plugin.GRPCBroker, s *grpc.Server) error {
	register(s, p.core)
	return nil
}

func (p *hostPlugin) GRPCClient(_ context.Context, _ *plugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return conn, nil
}
