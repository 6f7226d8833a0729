//! A way to a daemon that can be cut.

use std::{
    io,
    net::{Shutdown, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use super::Daemon;

/// Carries connections to a daemon, and can cut them.
pub struct Relay {
    pub endpoint: String,
    connections: Arc<Mutex<Vec<TcpStream>>>,
}

impl Relay {
    pub fn to(daemon: &Daemon) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let target = daemon.address().to_owned();
        let connections = Arc::new(Mutex::new(Vec::new()));
        let carried = Arc::clone(&connections);
        thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.unwrap();
                // Without a daemon, the client sees its connection end.
                let Ok(daemon) = TcpStream::connect(&target) else { continue };
                let mut carried = carried.lock().unwrap();
                carried.push(client.try_clone().unwrap());
                carried.push(daemon.try_clone().unwrap());
                carry(client.try_clone().unwrap(), daemon.try_clone().unwrap());
                carry(daemon, client);
            }
        });
        Self { endpoint, connections }
    }

    pub fn cut(&self) {
        for connection in self.connections.lock().unwrap().drain(..) {
            _ = connection.shutdown(Shutdown::Both);
        }
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream) {
    thread::spawn(move || {
        _ = io::copy(&mut from, &mut to);
        _ = to.shutdown(Shutdown::Both);
    });
}
