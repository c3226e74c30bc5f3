// SPDX-License-Identifier: Apache-2.0

package bridge

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// peerCreds are gRPC transport credentials for unix sockets: nothing is
// encrypted, but each side learns from the kernel who the other is.
type peerCreds struct {
	// allow, if set, is asked before anything is sent to a server.
	allow func(uid uint32) bool
}

// peerInfo is what the kernel says of the other side.
type peerInfo struct {
	credentials.CommonAuthInfo
	uid uint32
}

func (peerInfo) AuthType() string { return "peercred" }

func (c peerCreds) ClientHandshake(_ context.Context, _ string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	info, err := peerOf(conn)
	if err == nil && c.allow != nil && !c.allow(info.uid) {
		err = fmt.Errorf("the core's socket belongs to uid %d, not to root or the host daemon's user", info.uid)
	}
	return conn, info, err
}

func (c peerCreds) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	info, err := peerOf(conn)
	return conn, info, err
}

func (peerCreds) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "peercred"}
}
func (c peerCreds) Clone() credentials.TransportCredentials { return c }
func (peerCreds) OverrideServerName(string) error           { return nil }

func peerOf(conn net.Conn) (peerInfo, error) {
	info := peerInfo{CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}
	uc, ok := conn.(*net.UnixConn)
	if !ok {
		return info, errors.New("not a unix socket")
	}
	raw, err := uc.SyscallConn()
	if err != nil {
		return info, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return info, err
	}
	if credErr != nil {
		return info, credErr
	}
	info.uid = cred.Uid
	return info, nil
}

// Caller returns the uid of who is calling, as the kernel knows it.
func Caller(ctx context.Context) (uint32, bool) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return 0, false
	}
	info, ok := p.AuthInfo.(peerInfo)
	return info.uid, ok
}

// guard lets anyone read and only root and the host daemons' users do the rest:
// observe, and all that go-plugin adds (shutdown, streams, reflection).
func guard(ctx context.Context, method string, owners []uint32) error {
	uid, ok := Caller(ctx)
	switch {
	case !ok:
		return status.Error(codes.Unauthenticated, "no peer credentials")
	case uid == 0 || slices.Contains(owners, uid) || method == readMethod:
		return nil
	}
	return status.Errorf(codes.PermissionDenied, "uid %d may not call %s: only root and the uids %d may", uid, method, owners)
}
